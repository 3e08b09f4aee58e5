"""The edge log likelihood with exponentials of nodes, not of edges: docs/numerics.md#faint-edges."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.ops.chunks import smallest_factor
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.spmm import sddmm, spmm, spmm_by_factors, spmm_t

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


def _parts(graph: Adjacency, heads: int) -> Iterator[tuple[Adjacency, slice, slice]]:
    """The edges of heads side by side, all at once or, of a large graph, those to some targets of one head at a time.

    And where their targets are among those of all heads [h x n], and where the nodes are that sources count from.
    """
    if not graph.is_large:
        yield graph.block_diagonal(heads), slice(0, heads * graph.num_nodes), slice(0, heads * graph.num_sources)
        return
    for head in range(heads):
        first, sources = head * graph.num_nodes, slice(head * graph.num_sources, (head + 1) * graph.num_sources)
        for rows in graph.pieces():
            yield graph.to_targets(rows), slice(first + rows.start, first + rows.stop), sources


class _Faint(NamedTuple):
    """Edges whose product underflowed: the numbers of their ends, head by head, and their weights."""

    ends: Tensor
    starts: Tensor
    weights: Tensor


class _EdgeLogLikelihood(torch.autograd.Function):
    """A scalar: its gradient is known up to a factor, so the forward pass gives both. No tensor of edges by features.

    The heads are graphs of their own, side by side. The exponentials are the nodes' and not the edges': a key's are
    relative to the largest of each feature, and a query's are what is left of the weight. Where the product of an
    edge's ends underflows for that, the edge is worked out by itself. Of a large graph there is no tensor of all edges,
    either: what is worked out of an edge from its target is worked out again from its source.
    """

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, log_normalizers: Tensor, graph: Adjacency, target_weights: Tensor
    ) -> Tensor:
        if graph.num_edges == 0:
            ctx.save_for_backward(*(torch.zeros_like(tensor) for tensor in (queries, keys, log_normalizers)))
            return queries.new_zeros(())
        heads, wanted = queries.shape[1], any(ctx.needs_input_grad)
        by_target = target_weights.repeat(heads)  # [h x n]
        total, shifts, tops = queries.new_zeros(()), log_normalizers.t(), keys.amax(0)[:, None]
        rest, shares = _head_by_head(torch.add, queries, tops), _head_by_head(torch.sub, keys, tops)
        rest -= shifts[..., None]
        at_targets = _weights_at_targets(graph, target_weights)
        if float(rest.amax()) > 1:  # keys from beyond the normalizers may weigh more than all that are in them
            peaks = rest.amax(2)
            rest -= peaks[..., None]
            total, shifts = (at_targets.t() * peaks).sum(), shifts + peaks
        targets, sources = rest.exp_().flatten(0, 1), shares.exp_().flatten(0, 1)  # [h x n, m]
        grads = [torch.empty_like(rows) for rows in (targets, sources) if wanted and graph.is_large]
        faint: list[_Faint] = []
        for part, rows, others in _parts(graph, heads):
            weights = by_target[rows].index_select(0, part.targets)
            products = sddmm(part, targets[rows], sources[others])
            pulls = weights / products
            found = _where_faint(products)
            if len(found):
                ends, starts = (numbers[found].long() for numbers in (part.targets, part.sources))
                faint.append(_Faint(ends + rows.start, starts + others.start, weights[found]))
                pulls[found], products[found] = 0, 1
            total = total + torch.dot(weights, products.log_())
            if wanted and graph.is_large:
                grads[0][rows] = spmm(part, sources[others], pulls)
            elif wanted:
                grads = [spmm(part, sources, pulls), spmm_t(part, targets, pulls)]
        if wanted and graph.is_large:
            _pull_sources(graph, targets, sources, by_target, grads[1])
        made = [_node_by_node(*pair) for pair in zip(grads, (rest, shares), strict=False)]
        for some in faint:
            total = total + _add_faint(some, queries, keys, shifts.flatten(), made)
        ctx.save_for_backward(*made, -at_targets.expand_as(log_normalizers))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled = ctx.saved_tensors if float(grad) == 1 else [grad * saved for saved in ctx.saved_tensors]
        return *scaled, None, None


def _pull_sources(graph: Adjacency, targets: Tensor, sources: Tensor, by_target: Tensor, out: Tensor) -> None:
    """The gradient of the sources [h x sources, m] of a large graph, with the products of edges worked out again."""
    for part, rows, others in _parts(graph.reversed, len(targets) // graph.num_nodes):
        products = sddmm(part, sources[rows], targets[others])
        pulls = by_target[others].index_select(0, part.sources).div_(products)
        pulls[_where_faint(products)] = 0
        out[rows] = spmm(part, targets[others], pulls)


def _where_faint(products: Tensor) -> Tensor:
    return (products <= smallest_factor(products.dtype)).nonzero()[:, 0]


def _weights_at_targets(graph: Adjacency, target_weights: Tensor) -> Tensor:
    """The sum [n, 1] of the weights of all edges to each target."""
    ones = target_weights.new_ones(graph.num_sources, 1)
    if graph.is_large:
        return spmm_by_factors(graph, ones, (target_weights, ones[:, 0]))
    return spmm(graph, ones, target_weights.index_select(0, graph.targets))


def _add_faint(faint: _Faint, queries: Tensor, keys: Tensor, shifts: Tensor, grads: Sequence[Tensor]) -> Tensor:
    """The likelihood of faint edges by themselves; their gradient is added to those of queries and keys, if wanted."""
    total = queries.new_zeros(())
    for ends, starts, weights in zip(*(numbers.split(FAINT_AT_ONCE) for numbers in faint), strict=True):
        logs = queries[_places(ends, queries)] + keys[_places(starts, keys)]
        sums = logs.logsumexp(1)
        total = total + torch.dot(weights, sums - shifts[ends])
        logs.sub_(sums[:, None]).exp_().mul_(weights[:, None])
        for grad, numbers in zip(grads, (ends, starts), strict=False):
            _add_rows(grad, numbers, logs)
    return total


edge_log_likelihood = _EdgeLogLikelihood.apply  # see `definition`, which has its types
