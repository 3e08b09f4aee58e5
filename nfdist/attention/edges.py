"""Attention weights of given edges, without the N x N matrix: O(1) an edge, and no tensor of edges by features.

For an edge s -> t the query is t's and the key is s's; the weight is the noise-free one:

    log pi_ts = log Σ_m phi(q_t)_m phi(k_s)_m  -  log Σ_m phi(q_t)_m mass[m]

The second logarithm is the query's log normalizer, which `attend_to` returns. Edges come as the in-edges of every
target: sources[indptr[t] : indptr[t + 1]] are the nodes with an edge to t.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.chunks import chunks
from nfdist.attention.kernel import Kernel, KeyFeatures
from nfdist.attention.summary import KeySummary, smallest_factor
from nfdist.errors import ConfigError
from nfdist.sparse.adjacency import Adjacency

FAINT_AT_ONCE = 1 << 14


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
    queries: Tensor, key_logs: Tensor, log_normalizers: Tensor, graph: Adjacency, edge_weights: Tensor
) -> Tensor:
    """Σ over edges and heads of edge_weights[e] log pi[e, h], a scalar differentiable in its first three arguments."""
    _check(queries, key_logs, log_normalizers, graph.indptr, graph.sources)
    if edge_weights.shape != graph.sources.shape:
        raise ConfigError(
            f"edge_weights must be [{graph.num_edges}], one for every edge, got {list(edge_weights.shape)}"
        )
    total: Tensor = _EdgeLogLikelihood.apply(queries, key_logs, log_normalizers, graph, edge_weights)
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


def _places(numbers: Tensor, logs: Tensor) -> tuple[Tensor, Tensor]:
    """Where in logs [n, h, m] the rows are that are numbered head by head."""
    return numbers % len(logs), numbers // len(logs)


def _head_by_head(operation: Callable[..., Tensor], logs: Tensor, others: Tensor) -> Tensor:
    """The result [h, n, m] of logs [n, h, m] and others [h, ., m]."""
    logs = logs.transpose(0, 1)
    return operation(logs, others, out=logs.new_empty(logs.shape))


def _node_by_node(left: Tensor, right: Tensor) -> Tensor:
    """left [h x n, m] x right [h, n, m], as [n, h, m] that lies in memory as [h, m, n], in the place of the right."""
    left = left.view_as(right).mul_(right)
    return right.view(left.shape[0], left.shape[2], -1).copy_(left.transpose(1, 2)).movedim(-1, 0)


class _EdgeLogLikelihood(torch.autograd.Function):
    """A scalar: its gradient is known up to a factor, so the forward pass gives both.

    The heads are graphs of their own, side by side. The exponentials are the nodes' and not the edges': a key's are
    relative to the largest of each feature, and a query's are what is left of the weight. Where the product of an
    edge's ends underflows for that, the edge is worked out by itself.
    """

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, log_normalizers: Tensor, graph: Adjacency, edge_weights: Tensor
    ) -> Tensor:
        if graph.num_edges == 0:
            ctx.save_for_backward(*(torch.zeros_like(tensor) for tensor in (queries, keys, log_normalizers)))
            return queries.new_zeros(())
        heads, weights = graph.copies(queries.shape[1]), edge_weights.repeat(queries.shape[1])
        at_targets = graph.sum_in(keys.new_ones(len(keys), 1), edge_weights)
        total, shifts, tops = queries.new_zeros(()), log_normalizers.t(), keys.amax(0)[:, None]
        rest, shares = _head_by_head(torch.add, queries, tops), _head_by_head(torch.sub, keys, tops)
        rest -= shifts[..., None]
        if float(rest.amax()) > 1:  # keys from beyond the normalizers may weigh more than all that are in them
            peaks = rest.amax(2)
            rest -= peaks[..., None]
            total, shifts = (at_targets.t() * peaks).sum(), shifts + peaks
        targets, sources = rest.exp_().flatten(0, 1), shares.exp_().flatten(0, 1)  # [h x n, m]
        products = heads.products(targets, sources)
        faint = (products <= smallest_factor(products.dtype)).nonzero()[:, 0]
        pulls = weights / products
        if len(faint):
            pulls[faint], products[faint] = 0, 1
        total = total + torch.dot(weights, products.log_())
        grad_targets, grad_sources = heads.sum_in(sources, pulls), heads.sum_out(targets, pulls)
        grad_queries, grad_keys = _node_by_node(grad_targets, rest), _node_by_node(grad_sources, shares)
        for edges in faint.split(FAINT_AT_ONCE) if len(faint) else ():
            ends, starts, pulled = heads.targets[edges].long(), heads.sources[edges].long(), weights[edges]
            logs = queries[_places(ends, queries)] + keys[_places(starts, keys)]
            sums = logs.logsumexp(1)
            total = total + torch.dot(pulled, sums - shifts.flatten()[ends])
            logs.sub_(sums[:, None]).exp_().mul_(pulled[:, None])
            grad_queries.index_put_(_places(ends, queries), logs, accumulate=True)
            grad_keys.index_put_(_places(starts, keys), logs, accumulate=True)
        ctx.save_for_backward(grad_queries, grad_keys, -at_targets.expand_as(log_normalizers))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled = ctx.saved_tensors if float(grad) == 1 else [grad * saved for saved in ctx.saved_tensors]
        return *scaled, None, None
