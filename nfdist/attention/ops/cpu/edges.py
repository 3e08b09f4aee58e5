"""The edge log likelihood with exponentials of nodes, not of edges: docs/numerics.md#faint-edges."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.ops.chunks import smallest_factor
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.spmm import sddmm, spmm, spmm_t

FAINT_AT_ONCE = 1 << 14


def _places(numbers: Tensor, logs: Tensor) -> tuple[Tensor, Tensor]:
    """Where in logs [n, h, m] the rows are that are numbered head by head."""
    return numbers % len(logs), numbers // len(logs)


def _add_rows(out: Tensor, numbers: Tensor, rows: Tensor) -> None:
    """Add rows [e, m] to out [n, h, m] in their order; index_put_ would add in whatever order its threads come."""
    nodes, heads = _places(numbers, out)
    for head in heads.unique().tolist():
        chosen = heads == head
        out[:, head].index_add_(0, nodes[chosen], rows[chosen])


def _head_by_head(operation: Callable[..., Tensor], logs: Tensor, others: Tensor) -> Tensor:
    """The result [h, n, m] of logs [n, h, m] and others [h, ., m]."""
    logs = logs.transpose(0, 1)
    return operation(logs, others, out=logs.new_empty(logs.shape))


def _node_by_node(left: Tensor, right: Tensor) -> Tensor:
    """left [h x n, m] x right [h, n, m], as [n, h, m] that lies in memory as [h, m, n], in the place of the right."""
    left = left.view_as(right).mul_(right)
    return right.view(left.shape[0], left.shape[2], -1).copy_(left.transpose(1, 2)).movedim(-1, 0)


class _EdgeLogLikelihood(torch.autograd.Function):
    """A scalar: its gradient is known up to a factor, so the forward pass gives both. No tensor of edges by features.

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
        heads, weights = graph.block_diagonal(queries.shape[1]), edge_weights.repeat(queries.shape[1])
        at_targets = spmm(graph, keys.new_ones(len(keys), 1), edge_weights)
        total, shifts, tops = queries.new_zeros(()), log_normalizers.t(), keys.amax(0)[:, None]
        rest, shares = _head_by_head(torch.add, queries, tops), _head_by_head(torch.sub, keys, tops)
        rest -= shifts[..., None]
        if float(rest.amax()) > 1:  # keys from beyond the normalizers may weigh more than all that are in them
            peaks = rest.amax(2)
            rest -= peaks[..., None]
            total, shifts = (at_targets.t() * peaks).sum(), shifts + peaks
        targets, sources = rest.exp_().flatten(0, 1), shares.exp_().flatten(0, 1)  # [h x n, m]
        products = sddmm(heads, targets, sources)
        faint = (products <= smallest_factor(products.dtype)).nonzero()[:, 0]
        pulls = weights / products
        if len(faint):
            pulls[faint], products[faint] = 0, 1
        total = total + torch.dot(weights, products.log_())
        grad_targets, grad_sources = spmm(heads, sources, pulls), spmm_t(heads, targets, pulls)
        grad_queries, grad_keys = _node_by_node(grad_targets, rest), _node_by_node(grad_sources, shares)
        for edges in faint.split(FAINT_AT_ONCE) if len(faint) else ():
            ends, starts, pulled = heads.targets[edges].long(), heads.sources[edges].long(), weights[edges]
            logs = queries[_places(ends, queries)] + keys[_places(starts, keys)]
            sums = logs.logsumexp(1)
            total = total + torch.dot(pulled, sums - shifts.flatten()[ends])
            logs.sub_(sums[:, None]).exp_().mul_(pulled[:, None])
            _add_rows(grad_queries, ends, logs)
            _add_rows(grad_keys, starts, logs)
        ctx.save_for_backward(grad_queries, grad_keys, -at_targets.expand_as(log_normalizers))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled = ctx.saved_tensors if float(grad) == 1 else [grad * saved for saved in ctx.saved_tensors]
        return *scaled, None, None


edge_log_likelihood = _EdgeLogLikelihood.apply  # see `definition`, which has its types
