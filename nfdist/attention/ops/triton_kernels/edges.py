"""The edge log likelihood: a log-sum-exp of every edge and head, and never a tensor [e, m].

The gradient of queries is summed along the in-edges of targets and that of keys along the out-edges of sources, each by
one program in the order of the edges: nothing is added atomically, so a repetition gives the same bits.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.ops.triton_kernels.launch import addressable, count, launch, tile, wide_type
from nfdist.sparse.adjacency import Adjacency

_BLOCK_EDGES = 16


def edge_log_likelihood(
    queries: Tensor, key_logs: Tensor, log_normalizers: Tensor, graph: Adjacency, target_weights: Tensor
) -> Tensor:
    """See `definition.edge_log_likelihood`; the sum has at least float32."""
    ends = addressable(queries), addressable(key_logs)
    edge_weights = target_weights.index_select(0, graph.targets)
    total: Tensor = _EdgeLogLikelihood.apply(*ends, log_normalizers, graph, edge_weights)
    return total


class _EdgeLogLikelihood(torch.autograd.Function):
    """Keeps the logarithm of every edge's sum, [h, e]."""

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, log_normalizers: Tensor, graph: Adjacency, edge_weights: Tensor
    ) -> Tensor:
        (heads, num_features), num_edges = queries.shape[1:], graph.num_edges
        log_products = torch.empty(heads, num_edges, dtype=wide_type(queries), device=queries.device)
        totals = log_products.new_empty(count(num_edges, _BLOCK_EDGES))
        arguments = (queries, keys, log_normalizers, graph.targets, graph.sources, edge_weights, log_products, totals)
        numbers = (num_edges, heads, num_features, *queries.stride(), *keys.stride(), *log_normalizers.stride())
        constants = {"block_e": _BLOCK_EDGES, "block_m": tile(num_features), "wide": _wide(queries)}
        launch(_log_product_kernel, (len(totals),), *arguments, *numbers, **constants)
        ctx.save_for_backward(queries, keys, edge_weights, log_products)
        ctx.graph, ctx.like = graph, log_normalizers
        return totals.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, edge_weights, log_products = ctx.saved_tensors
        graph: Adjacency = ctx.graph
        (transposed, positions), numbers = graph.transposed, None
        grad_queries, grad_keys = queries.new_empty(queries.shape), keys.new_empty(keys.shape)
        grad_normalizers = torch.empty_like(ctx.like, memory_format=torch.contiguous_format)
        shared = (edge_weights, log_products, grad)
        _pull_rows(graph, numbers, queries, keys, *shared, grad_queries, grad_normalizers)
        _pull_rows(transposed, positions, keys, queries, *shared, grad_keys, None)
        return grad_queries, grad_keys, grad_normalizers, None, None


def _pull_rows(
    graph: Adjacency,
    positions: Tensor | None,
    rows: Tensor,
    others: Tensor,
    edge_weights: Tensor,
    log_products: Tensor,
    grad: Tensor,
    grad_rows: Tensor,
    grad_normalizers: Tensor | None,
) -> None:
    """The gradient of the rows at one end of the edges, which `positions` finds if they are another order's."""
    heads, num_features = rows.shape[1:]
    arguments = (graph.indptr, graph.sources, positions, rows, others, edge_weights, log_products, grad, grad_rows)
    numbers = (graph.num_edges, num_features, *rows.stride(), *others.stride())
    block_m = tile(num_features)
    constants = {"block_e": _BLOCK_EDGES, "block_m": block_m, "wide": _wide(rows), "num_warps": 1}
    grid = (graph.num_nodes, count(num_features, block_m), heads)
    launch(_pull_kernel, grid, *arguments, grad_normalizers, *numbers, **constants)


def _wide(like: Tensor) -> tl.dtype:
    return tl.float64 if like.dtype == torch.float64 else tl.float32


@triton.jit
def _log_product_kernel(
    queries,
    keys,
    log_normalizers,
    targets,
    sources,
    edge_weights,
    log_products,
    totals,
    num_edges,
    heads,
    num_features,
    queries_n,
    queries_h,
    queries_m,
    keys_n,
    keys_h,
    keys_m,
    normalizers_n,
    normalizers_h,
    block_e: tl.constexpr,
    block_m: tl.constexpr,
    wide: tl.constexpr,
):
    """log Σ_m exp(query + key) of a block of edges in all heads, and the block's part of the sum."""
    edges = tl.program_id(0).to(tl.int64) * block_e + tl.arange(0, block_e)
    live = edges < num_edges
    ends = tl.load(targets + edges, mask=live, other=0).to(tl.int64)
    starts = tl.load(sources + edges, mask=live, other=0).to(tl.int64)
    weights = tl.load(edge_weights + edges, mask=live, other=0).to(wide)
    total = tl.zeros([block_e], wide)
    for head in range(heads):
        peak = tl.full([block_e], float("-inf"), wide)
        mass = tl.zeros([block_e], wide)
        for start in range(0, num_features, block_m):
            known = start + tl.arange(0, block_m)
            mask = live[:, None] & (known < num_features)[None, :]
            query_at = ends[:, None] * queries_n + head * queries_h + known[None, :] * queries_m
            key_at = starts[:, None] * keys_n + head * keys_h + known[None, :] * keys_m
            exponents = tl.load(queries + query_at, mask=mask, other=0).to(wide)
            exponents += tl.load(keys + key_at, mask=mask, other=0).to(wide)
            exponents = tl.where((known < num_features)[None, :], exponents, float("-inf"))
            higher = tl.maximum(peak, tl.max(exponents, 1))
            mass = mass * tl.exp(peak - higher) + tl.sum(tl.exp(exponents - higher[:, None]), 1)
            peak = higher
        log_product = peak + tl.log(mass)
        tl.store(log_products + tl.cast(head, tl.int64) * num_edges + edges, log_product, mask=live)
        normalizer = tl.load(log_normalizers + ends * normalizers_n + head * normalizers_h, mask=live, other=0)
        total += weights * (log_product - normalizer.to(wide))
    tl.store(totals + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def _pull_kernel(
    indptr,
    neighbors,
    positions,
    rows,
    others,
    edge_weights,
    log_products,
    grad,
    grad_rows,
    grad_normalizers,
    num_edges,
    num_features,
    rows_n,
    rows_h,
    rows_m,
    others_n,
    others_h,
    others_m,
    block_e: tl.constexpr,
    block_m: tl.constexpr,
    wide: tl.constexpr,
):
    """grad Σ over a row's edges of weight softmax_m(row + other), [m], and its log normalizer's, - grad Σ weight."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(2)
    known = tl.program_id(1) * block_m + tl.arange(0, block_m)
    there = known < num_features
    own = tl.load(rows + row * rows_n + head * rows_h + known * rows_m, mask=there, other=float("-inf")).to(wide)
    first, last = tl.load(indptr + row).to(tl.int64), tl.load(indptr + row + 1).to(tl.int64)
    pulled = tl.zeros([block_m], wide)
    whole = tl.zeros([block_e], wide)
    for start in range(first, last, block_e):
        places = start + tl.arange(0, block_e)
        live = places < last
        met = tl.load(neighbors + places, mask=live, other=0).to(tl.int64)
        edges = places
        if positions is not None:
            edges = tl.load(positions + places, mask=live, other=0).to(tl.int64)
        weights = tl.load(edge_weights + edges, mask=live, other=0).to(wide)
        log_product = tl.load(log_products + tl.cast(head, tl.int64) * num_edges + edges, mask=live, other=0)
        other_at = met[:, None] * others_n + head * others_h + known[None, :] * others_m
        other = tl.load(others + other_at, mask=live[:, None] & there[None, :], other=float("-inf")).to(wide)
        shares = tl.exp(own[None, :] + other - log_product[:, None])
        pulled += tl.sum(shares * weights[:, None], 0)
        whole += weights
    factor = tl.load(grad).to(wide)
    own_at = (row * tl.num_programs(2) + head) * num_features + known
    tl.store(grad_rows + own_at, factor * pulled, mask=there)
    if grad_normalizers is not None:
        first_tile = tl.program_id(1) == 0
        tl.store(grad_normalizers + row * tl.num_programs(2) + head, -factor * tl.sum(whole, 0), mask=first_tile)
