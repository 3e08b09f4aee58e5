"""Halo: rows that live on other ranks but have edges to nodes of this one, fetched in each layer, differentiably."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.collectives import exchange, swap
from nfdist.model.relation import Relation
from nfdist.sparse.adjacency import Adjacency
from nfdist.world import World


@dataclass(frozen=True)
class Halo:
    """`sent` are the rows this rank gives away, grouped by receiving rank; what it gets comes by owner, after its own.

    An extended tensor is [own rows, rows of rank 0, rows of rank 1, ...].
    """

    sent: Tensor
    sent_counts: tuple[int, ...]
    received_counts: tuple[int, ...]

    @property
    def num_received(self) -> int:
        return sum(self.received_counts)

    @staticmethod
    def build(world: World, sizes: Sequence[int], patterns: Sequence[Adjacency]) -> tuple["Halo", list[Adjacency]]:
        """The halo of patterns whose sources count the rows of all ranks, one rank after another, and the patterns
        with sources among the extended rows of this rank. Every rank must call this.

        `sizes` are the numbers of rows of all ranks.
        """
        ends = torch.tensor([0, *sizes]).cumsum(0)
        start, stop = int(ends[world.rank]), int(ends[world.rank + 1])
        elsewhere = [pattern.sources[(pattern.sources < start) | (pattern.sources >= stop)] for pattern in patterns]
        wanted = torch.unique(torch.cat([torch.empty(0, dtype=torch.int64), *elsewhere]))  # ascending: by owner
        received = torch.searchsorted(wanted, ends).diff().tolist()
        requests = [rows - base for rows, base in zip(wanted.split(received), ends.tolist(), strict=False)]
        asked = exchange(world, requests, "halo requests")
        halo = Halo(torch.cat(asked), tuple(map(len, asked)), tuple(received))
        return halo, [_renumbered(pattern, start, stop, wanted) for pattern in patterns]

    def fetch(self, rows: Tensor, world: World) -> Tensor:
        """The extended rows, differentiable. Every rank must call this."""
        if world.size == 1:
            return rows
        extended: Tensor = _Fetch.apply(rows, self, world)
        return extended

    def give_back(self, extended: Tensor, world: World) -> Tensor:
        """Own rows plus what other ranks hold for them: the adjoint of `fetch`. Every rank must call this."""
        own = extended[: len(extended) - self.num_received].clone()
        outgoing = extended[len(own) :].split(list(self.received_counts))
        returned = swap(world, outgoing, self.sent_counts, "halo gradients")
        return own.index_add_(0, self.sent, torch.cat(returned))

    def extended(self, rows: Tensor, world: World) -> Tensor:
        """`fetch`, not recorded for differentiation."""
        outgoing = rows.index_select(0, self.sent).split(list(self.sent_counts))
        return torch.cat([rows, *swap(world, outgoing, self.received_counts, "halo rows")])

    def to(self, device: torch.device | str) -> "Halo":
        return Halo(self.sent.to(device), self.sent_counts, self.received_counts)


def build_shared_relations(
    world: World, sizes: Sequence[int], patterns: Sequence[Adjacency], normalize: bool, dtype: torch.dtype
) -> tuple[list[Relation], Halo]:
    """Relations among the rows of all ranks, of which this one has the targets. Every rank must call this.

    `sizes` and `patterns` are as for `Halo.build`; an edge's weight needs the degrees of both ends in the whole.
    """
    halo, local = Halo.build(world, sizes, patterns)
    relations = []
    for pattern in local:
        out_degrees = halo.extended(halo.give_back(pattern.out_degrees, world), world)
        relations.append(Relation.build(pattern, normalize, dtype, out_degrees))
    return relations, halo


class _Fetch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, halo: Halo, world: World) -> Tensor:
        ctx.halo, ctx.world = halo, world
        return halo.extended(rows, world)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.halo.give_back(grad, ctx.world), None, None


def _renumbered(pattern: Adjacency, start: int, stop: int, wanted: Tensor) -> Adjacency:
    """Sources start .. stop - 1 become the first rows, the others their place in `wanted` after them."""
    sources = pattern.sources
    own = (sources >= start) & (sources < stop)
    places = torch.searchsorted(wanted, sources.long()) + (stop - start)
    renumbered = torch.where(own, sources - start, places.to(sources.dtype))
    return Adjacency(pattern.indptr, renumbered, stop - start + len(wanted))
