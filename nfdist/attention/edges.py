"""Attention weights of given edges, without the N x N matrix: O(1) an edge, in chunks of edges.

For an edge s -> t the query is t's and the key is s's; the weight is the noise-free one:

    log pi_ts = log Σ_m phi(q_t)_m phi(k_s)_m  -  log Σ_m phi(q_t)_m mass[m]

The second logarithm is the query's log normalizer, which `attend_to` returns. Edges come as the in-edges of every
target: sources[indptr[t] : indptr[t + 1]] are the nodes with an edge to t.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.chunks import Scratch, chunks
from nfdist.attention.kernel import Kernel, KeyFeatures
from nfdist.attention.summary import KeySummary
from nfdist.errors import ConfigError


def edge_log_weights(
    queries: Tensor, key_logs: Tensor, log_normalizers: Tensor, indptr: Tensor, sources: Tensor
) -> Tensor:
    """log pi [e, h] of every edge, from features [n, h, m]; see `edge_log_likelihood` for gradients."""
    _check(queries, key_logs, log_normalizers, indptr, sources)
    with torch.no_grad():
        targets = _targets(indptr)
        log_weights = queries.new_empty(len(sources), queries.shape[1])
        for rows in chunks(len(sources), queries.shape[1] * queries.shape[2], queries.device):
            log_products = queries.index_select(0, targets[rows]).add_(key_logs.index_select(0, sources[rows]))
            log_weights[rows] = log_products.logsumexp(2)
        return log_weights.sub_(log_normalizers.index_select(0, targets))


def edge_log_likelihood(
    queries: Tensor, key_logs: Tensor, log_normalizers: Tensor, indptr: Tensor, sources: Tensor, edge_weights: Tensor
) -> Tensor:
    """Σ over edges and heads of edge_weights[e] log pi[e, h], a scalar differentiable in its first three arguments."""
    _check(queries, key_logs, log_normalizers, indptr, sources)
    if edge_weights.shape != sources.shape:
        raise ConfigError(f"edge_weights must be [{len(sources)}], one for every edge, got {list(edge_weights.shape)}")
    total: Tensor = _EdgeLogLikelihood.apply(queries, key_logs, log_normalizers, indptr, sources, edge_weights)
    return total


def edge_key_logs(keys: KeyFeatures, summary: KeySummary, kernel: Kernel) -> Tensor:
    """The keys' log features [n, h, m] as queries meet them: with epsilon, shifted by the peak of all keys in scope."""
    return keys.logs if summary.peak is None else kernel.add_epsilon(keys.logs, summary.peak[:, None])


def _check(queries: Tensor, key_logs: Tensor, log_normalizers: Tensor, indptr: Tensor, sources: Tensor) -> None:
    if queries.ndim != 3 or queries.shape[1:] != key_logs.shape[1:] or log_normalizers.shape != queries.shape[:2]:
        shapes = ", ".join(str(list(tensor.shape)) for tensor in (queries, key_logs, log_normalizers))
        raise ConfigError(f"edges need features [n, h, m] of queries and keys and normalizers [n, h], got {shapes}")
    if indptr.shape != (len(queries) + 1,) or int(indptr[0]) != 0 or int(indptr[-1]) != len(sources):
        raise ConfigError(
            f"indptr must be [{len(queries) + 1}], 0 to the {len(sources)} edges, got {list(indptr.shape)}"
        )
    if len(sources):
        lowest, highest = (int(end) for end in torch.aminmax(sources))
        if lowest < 0 or highest >= len(key_logs):
            bad = lowest if lowest < 0 else highest
            raise ConfigError(f"an edge has source {bad}, outside the {len(key_logs)} nodes given")


def _targets(indptr: Tensor) -> Tensor:
    nodes = torch.arange(len(indptr) - 1, device=indptr.device)
    return nodes.repeat_interleave(indptr.diff())


class _EdgeLogLikelihood(torch.autograd.Function):
    """A scalar: its gradient is known up to a factor, so one gather of the edges gives both in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        log_normalizers: Tensor,
        indptr: Tensor,
        sources: Tensor,
        edge_weights: Tensor,
    ) -> Tensor:
        targets = _targets(indptr)
        target_weights = queries.new_zeros(len(queries)).index_add_(0, targets, edge_weights)
        total = -torch.dot(target_weights, log_normalizers.sum(1))
        grad_queries, grad_keys = torch.zeros_like(queries), torch.zeros_like(keys)
        scratch = Scratch(queries)
        for rows in chunks(len(sources), queries.shape[1] * queries.shape[2], queries.device):
            to_nodes, from_nodes, weights = targets[rows], sources[rows].long(), edge_weights[rows]
            shape = (len(to_nodes), *queries.shape[1:])
            shares = torch.index_select(queries, 0, to_nodes, out=scratch.take("shares", *shape))
            shares += torch.index_select(keys, 0, from_nodes, out=scratch.take("keys", *shape))
            top = shares.amax(2, keepdim=True)
            sums = shares.sub_(top).exp_().sum(2, keepdim=True)
            total += torch.dot(weights, (sums.log() + top).sum((1, 2)))
            shares.mul_(weights[:, None, None] / sums)
            grad_keys.index_add_(0, from_nodes, shares)
            # The targets of a chunk are consecutive nodes, each with its edges in one run: sum the runs.
            first, last = int(to_nodes[0]), int(to_nodes[-1])
            runs = indptr[first : last + 1].clamp(min=rows.start) - rows.start
            order = torch.arange(len(to_nodes), device=runs.device, dtype=runs.dtype)
            run_sums = F.embedding_bag(order, shares.flatten(1), runs, mode="sum")
            grad_queries[first : last + 1].add_(run_sums.view(-1, *queries.shape[1:]))
        ctx.save_for_backward(grad_queries, grad_keys, -target_weights[:, None].expand_as(log_normalizers))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled = ctx.saved_tensors if float(grad) == 1 else [grad * saved for saved in ctx.saved_tensors]
        return *scaled, None, None, None
