"""The edge log likelihood, every edge on its own: exact at any scale, with no look at which edges are faint.

The sums over a node's edges are made in the order of the edges, from either end, and so are always the same.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.ops.chunks import chunks
from nfdist.attention.ops.gpu.attention import logsumexp_of
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.spmm import segment_spmm, spmm


def edge_log_likelihood(
    queries: Tensor,
    key_logs: Tensor,
    log_normalizers: Tensor,
    graph: Adjacency,
    target_weights: Tensor,
    *,
    chunk_rows: int | None = None,
) -> Tensor:
    """See `definition.edge_log_likelihood`; there is no more of [e, h, m] than a chunk of edges."""
    edge_weights = target_weights.index_select(0, graph.targets)
    total: Tensor = _EdgeLogLikelihood.apply(queries, key_logs, log_normalizers, graph, edge_weights, chunk_rows)
    return total


class _EdgeLogLikelihood(torch.autograd.Function):
    """A scalar: its gradient is known up to a factor, so the forward pass gives both.

    The gradient of an edge's log product is a softmax over features, for the query and for the key alike.
    """

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        log_normalizers: Tensor,
        graph: Adjacency,
        edge_weights: Tensor,
        chunk_rows: int | None,
    ) -> Tensor:
        if graph.num_edges == 0:
            ctx.save_for_backward(*(torch.zeros_like(tensor) for tensor in (queries, keys, log_normalizers)))
            return queries.new_zeros(())
        by_target = _Side(graph, edge_weights, queries, keys)
        by_source = _Side(graph.transposed[0], edge_weights.index_select(0, graph.transposed[1]), keys, queries)
        totals = []
        for edges in chunks(graph.num_edges, queries[0].numel(), queries.device, chunk_rows):
            log_products = logsumexp_of(*by_target.add(edges))
            by_source.add(edges)
            log_weights = log_products.sub_(log_normalizers.index_select(0, graph.targets[edges]))
            totals.append(log_weights.mul_(edge_weights[edges, None]).sum())
        at_targets = spmm(graph, keys.new_ones(len(keys), 1), edge_weights)
        ctx.save_for_backward(by_target.gradient, by_source.gradient, -at_targets.expand_as(log_normalizers))
        return totals[0] if len(totals) == 1 else torch.stack(totals).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *torch._foreach_mul(ctx.saved_tensors, grad), None, None, None


class _Side:
    """One end of all edges: the gradient [n, h, m] of the `own` rows at that end, given the `other` rows."""

    def __init__(self, graph: Adjacency, edge_weights: Tensor, own: Tensor, other: Tensor) -> None:
        self._graph, self._edge_weights, self._own, self._other = graph, edge_weights, own, other
        self.gradient = own.new_empty(0)

    def add(self, edges: slice) -> tuple[Tensor, Tensor]:
        """Add some edges to the gradient; their log features [e, h, m] and the softmax of these."""
        graph = self._graph
        logs = self._own.index_select(0, graph.targets[edges])
        logs += self._other.index_select(0, graph.sources[edges])
        shares = logs.softmax(2)
        ends = graph.indptr.clamp(edges.start, edges.stop) - edges.start
        numbers = torch.arange(len(logs), dtype=ends.dtype, device=ends.device)
        sums = segment_spmm(ends, numbers, shares.flatten(1), self._edge_weights[edges]).view_as(self._own)
        self.gradient = sums if edges.start == 0 else self.gradient.add_(sums)
        return logs, shares
