"""Sums over neighbors: the sparse products of nfdist, written once.

    spmm    out[t] = Σ over in-edges s -> t of weights[e] rows[s]
    spmm_t  out[s] = Σ over out-edges s -> t of weights[e] rows[t]
    sddmm   out[e] = left[t] . right[s]

On the CPU torch's embedding bag is the fastest of those tried (benchmarks/sparse.py); it exists on GPUs too.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.csr import sparse_csr

Factors = tuple[Tensor, Tensor]  # of the targets and of the sources of edges


def spmm(graph: Adjacency, rows: Tensor, edge_weights: Tensor | None = None) -> Tensor:
    """Σ over in-edges of edge_weights[e] rows[source], [n, c]; `propagate` has a gradient."""
    return segment_spmm(graph.indptr, graph.sources, rows, edge_weights)


def segment_spmm(indptr: Tensor, sources: Tensor, rows: Tensor, edge_weights: Tensor | None = None) -> Tensor:
    """`spmm` of the in-edges sources[indptr[t] : indptr[t + 1]] of consecutive targets."""
    return F.embedding_bag(sources, rows, indptr, mode="sum", include_last_offset=True, per_sample_weights=edge_weights)


def spmm_by_factors(graph: Adjacency, rows: Tensor, factors: Factors) -> Tensor:
    """`spmm` with weights at_target[t] x at_source[s], made for some edges at a time: the same to the bit."""
    at_target, at_source = factors
    out = rows.new_empty(graph.num_nodes, rows.shape[1])
    for targets in graph.pieces():
        piece = graph.to_targets(targets)
        weights = at_target[targets].index_select(0, piece.targets).mul_(at_source.index_select(0, piece.sources))
        out[targets] = spmm(piece, rows, weights)
    return out


def spmm_t(graph: Adjacency, rows: Tensor, edge_weights: Tensor) -> Tensor:
    """Σ over out-edges of edge_weights[e] rows[target], [sources, c]; not recorded for differentiation."""
    transposed, positions = graph.transposed
    return spmm(transposed, rows, edge_weights.index_select(0, positions))


def sddmm(graph: Adjacency, left: Tensor, right: Tensor) -> Tensor:
    """left[target] . right[source] of every edge, [e]; not recorded for differentiation."""
    shape = (graph.num_nodes, graph.num_sources)
    pattern = sparse_csr(graph.indptr, graph.sources, left.new_zeros(graph.num_edges), shape)
    products: Tensor = torch.sparse.sampled_addmm(pattern, left, right.t(), beta=0.0).values()
    return products


def propagate(graph: Adjacency, rows: Tensor, edge_weights: Tensor) -> Tensor:
    """`spmm` over the edges of a graph, differentiable: its gradients are `spmm_t` of rows and `sddmm` of weights."""
    out: Tensor = _Propagate.apply(rows, graph, edge_weights)
    return out


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, graph: Adjacency, edge_weights: Tensor) -> Tensor:
        ctx.graph, ctx.learned = graph, edge_weights.requires_grad
        ctx.save_for_backward(edge_weights, *([rows] if ctx.learned else []))
        return spmm(graph, rows.contiguous(), edge_weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor | None]:
        (edge_weights, *rows), grad = ctx.saved_tensors, grad.contiguous()
        weight_grad = sddmm(ctx.graph, grad, rows[0].contiguous()) if ctx.learned else None
        return spmm_t(ctx.graph, grad, edge_weights), None, weight_grad
