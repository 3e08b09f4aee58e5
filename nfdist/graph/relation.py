"""Relations: which rows a row's bias comes from, over paths of up to a given order, and with what weight.

Â_j: the pattern of (A + I)^j, each entry s -> t weighted 1 / sqrt(d_in(t) d_out(s))
Â_1^j instead of Â_j: with relation.kind = "power" (neighbors.py)
Â_1 of a weighted graph: w(s, t) / sqrt(Σ_s' w(s', t)  Σ_t' w(s, t')), where a self-loop weighs 1
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.errors import ConfigError
from nfdist.graph.halo import Halo
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.spmm import Factors, spmm, spmm_by_factors
from nfdist.world import World


def degree_factors(degrees: Tensor, dtype: torch.dtype, out: Tensor | None = None) -> Tensor:
    """What one end of an edge contributes to its weight: 1 / sqrt(degree)."""
    return torch.rsqrt(degrees.to(dtype), out=out)


def _target_degrees(pattern: Adjacency) -> Tensor:
    """The number of edges to every target, or the sum of their weights."""
    return (
        pattern.in_degrees if pattern.weights is None else _summed(pattern.targets, pattern.num_nodes, pattern.weights)
    )


def source_degrees(pattern: Adjacency) -> Tensor:
    """The number of edges from every source, or the sum of their weights."""
    if pattern.weights is None:
        return pattern.out_degrees
    return _summed(pattern.sources, pattern.num_sources, pattern.weights)


def _summed(ends: Tensor, count: int, weights: Tensor) -> Tensor:
    # In float64: in float32 the sum of many small weights would depend on their order.
    return torch.zeros(count, dtype=torch.float64, device=ends.device).index_add_(0, ends, weights.double())


@dataclass(frozen=True)
class Relation:
    """One Â_j, with the weight of every edge and their sum [n] at every target.

    Its targets are the n nodes of a batch; its sources are the same nodes, or these and a halo of others after them.
    Weights that are not `known` are products of `factors` of targets [n] and sources, worked out some edges at a time.
    """

    adjacency: Adjacency
    known_weights: Tensor | None
    total_weights: Tensor
    factors: Factors | None = None

    @staticmethod
    def build(
        pattern: Adjacency,
        normalize: bool = True,
        dtype: torch.dtype = torch.float32,
        out_degrees: Tensor | None = None,
    ) -> "Relation":
        """The relation of a pattern; `out_degrees` where its sources have edges to targets that are not here.

        Where edges have weights, degrees are sums of these.
        """
        if pattern.is_large and normalize and pattern.weights is None:
            out_degrees = pattern.reversed.in_degrees if out_degrees is None else out_degrees
            factors = degree_factors(pattern.in_degrees, dtype), degree_factors(out_degrees, dtype)
            ones = factors[0].new_ones(pattern.num_sources, 1)
            return Relation(pattern, None, spmm_by_factors(pattern, ones, factors)[:, 0], factors)
        of_edges = None if pattern.weights is None else pattern.weights.to(dtype)
        weights = torch.ones(pattern.num_edges, dtype=dtype, device=pattern.sources.device)
        if normalize:
            out_degrees = source_degrees(pattern) if out_degrees is None else out_degrees
            at_target, at_source = degree_factors(_target_degrees(pattern), dtype), degree_factors(out_degrees, dtype)
            weights = at_target.index_select(0, pattern.targets) * at_source.index_select(0, pattern.sources)
        weights = weights if of_edges is None else weights.mul_(of_edges)
        totals = weights.new_zeros(pattern.num_nodes).index_add_(0, pattern.targets, weights)
        pattern.transposed  # noqa: B018  (made here, with the batch, and not in the step)
        return Relation(pattern, weights, totals)

    @cached_property
    def edge_weights(self) -> Tensor:
        """The weight of every edge, in the order of the edges."""
        if self.known_weights is not None:
            return self.known_weights
        assert self.factors is not None
        at_target, at_source = self.factors
        return at_target.index_select(0, self.adjacency.targets) * at_source.index_select(0, self.adjacency.sources)

    @cached_property
    def transposed_weights(self) -> Tensor:
        """The weights in the order of the transposed edges."""
        return self.edge_weights.index_select(0, self.adjacency.transposed[1])

    def propagate(self, rows: Tensor) -> Tensor:
        """Â_j rows, [n, c]; differentiable."""
        made: Tensor = _Propagate.apply(rows, self)
        return made

    def sums(self, rows: Tensor) -> Tensor:
        """Â_j rows, [n, c]; not recorded for differentiation."""
        if self.factors is not None:
            return spmm_by_factors(self.adjacency, rows, self.factors)
        return spmm(self.adjacency, rows, self.edge_weights)

    def reversed_sums(self, rows: Tensor) -> Tensor:
        """Â_jᵀ rows, [sources, c]; not recorded for differentiation."""
        if self.factors is not None:
            return spmm_by_factors(self.adjacency.reversed, rows, self.factors[::-1])
        return spmm(self.adjacency.transposed[0], rows, self.transposed_weights)

    def each(self, change: Callable[[Tensor], Tensor]) -> "Relation":
        """The same with each of its tensors changed, as by a copy to a device."""
        known = None if self.known_weights is None else change(self.known_weights)
        factors = None if self.factors is None else (change(self.factors[0]), change(self.factors[1]))
        return Relation(self.adjacency.each(change), known, change(self.total_weights), factors)

    def to(self, device: torch.device | str) -> "Relation":
        return self.each(lambda tensor: tensor.to(device))


def build_relations(
    graph: Adjacency, order: int, normalize: bool = True, dtype: torch.dtype = torch.float32
) -> list[Relation]:
    """Â_1 .. Â_order of a whole graph: costly for order 2 and up, so build them once.

    Where edges have weights, which Â_1 heeds, every node must have its loop.
    """
    patterns = [graph.power(hop) for hop in range(1, order + 1)]
    if order and graph.weights is not None:
        if patterns[0].num_edges != graph.num_edges:
            raise ConfigError("a graph with edge weights lacks some self-loops: take it with loops=True")
        patterns[0] = graph
    return [Relation.build(pattern, normalize, dtype) for pattern in patterns]


def build_world_relations(
    world: World, sizes: Sequence[int], patterns: Sequence[Adjacency], normalize: bool, dtype: torch.dtype
) -> tuple[list[Relation], Halo]:
    """Relations among the rows of all ranks, of which this one has the targets. Every rank must call this.

    `sizes` are the numbers of rows of all ranks; the patterns' sources count these rows, one rank after another.
    """
    ends = torch.tensor([0, *sizes]).cumsum(0)
    own = range(int(ends[world.rank]), int(ends[world.rank + 1]))
    outside = [pattern.sources[(pattern.sources < own.start) | (pattern.sources >= own.stop)] for pattern in patterns]
    copied = torch.unique(torch.cat([torch.empty(0, dtype=torch.int64), *outside]))  # ascending: by owner
    counts = torch.searchsorted(copied, ends).diff().tolist()
    halo = Halo.build(world, [rows - base for rows, base in zip(copied.split(counts), ends.tolist(), strict=False)])
    relations = []
    for pattern in (_renumbered(pattern, own, copied) for pattern in patterns):
        out_degrees = source_degrees(pattern).clone()
        halo.accumulate(out_degrees, world)
        halo.fetch(out_degrees, world)
        relations.append(Relation.build(pattern, normalize, dtype, out_degrees))
    return relations, halo


def _renumbered(pattern: Adjacency, own: range, copied: Tensor) -> Adjacency:
    """Sources of its own become the first rows, the others their place in `copied` after them."""
    sources = pattern.sources
    places = torch.searchsorted(copied, sources.long()) + len(own)
    inside = (sources >= own.start) & (sources < own.stop)
    renumbered = torch.where(inside, sources - own.start, places.to(sources.dtype))
    return Adjacency(pattern.indptr, renumbered, len(own) + len(copied), pattern.weights)


def mapped_sums(sums: Iterable[Tensor], totals: Tensor, maps: Tensor, offsets: Tensor) -> Tensor:
    """Σ_j sums_j maps[j]ᵀ + totals_j ⊗ offsets[j], of each hop's sums [n, c] and total weights [n, j].

    Maps are [j, c, c] and offsets [j, c]; not recorded for differentiation.
    """
    out = torch.mm(totals, offsets)
    for hop_sums, weight in zip(sums, maps, strict=True):
        out.addmm_(hop_sums, weight.t())
    return out


def relate(rows: Tensor, maps: Tensor, offsets: Tensor, relations: Sequence[Relation]) -> Tensor:
    """`mapped_sums` of the relations' sums of rows [sources, d], [n, c]; differentiable.

    The backward pass works from the transposed edges, so that no hop's sums are kept.
    """
    out: Tensor = _Relate.apply(rows, maps, offsets, relations)
    return out


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, relation: Relation) -> Tensor:
        ctx.relation = relation
        return relation.sums(rows.contiguous())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.relation.reversed_sums(grad.contiguous()), None


class _Relate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, maps: Tensor, offsets: Tensor, relations: Sequence[Relation]) -> Tensor:
        ctx.save_for_backward(rows, maps)
        ctx.relations, ctx.totals = relations, torch.stack([relation.total_weights for relation in relations], 1)
        sums = (relation.sums(rows) for relation in relations)
        return mapped_sums(sums, ctx.totals, maps, offsets)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, maps = ctx.saved_tensors
        grad_rows, grad_maps = torch.zeros_like(rows), torch.empty_like(maps)
        for hop, relation in enumerate(ctx.relations):
            returned = relation.reversed_sums(grad)
            grad_rows.addmm_(returned, maps[hop])
            torch.mm(returned.t(), rows, out=grad_maps[hop])  # gradᵀ Â rows, without keeping Â rows
        return grad_rows, grad_maps, ctx.totals.t() @ grad, None
