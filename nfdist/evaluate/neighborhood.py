"""Neighborhood: all that evaluation needs to know of the graph around this rank's nodes, worked out once."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from nfdist.collectives import together
from nfdist.config import RelationConfig
from nfdist.evaluate.border import Border
from nfdist.evaluate.neighbors import (
    Hop,
    InEdges,
    count_sources,
    mapped_in_edges,
    mark_sources,
    missing_loops,
    renumbered,
)
from nfdist.evaluate.space import Space
from nfdist.evaluate.workers import Workers
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.world import World

ROWS_AT_ONCE = 1 << 16


class Neighborhood:
    """The hops around this rank's nodes. Every rank must make one; the store must hold the parts of its own nodes.

    `divided` are the nodes of all ranks. `totals` [n, order] are the weights of each hop's edges, summed at their
    targets. Hops sum rows that were multiplied by `root` [sources]; None is 1 for all.
    """

    def __init__(
        self,
        store: Store,
        hops: Hops,
        relation: RelationConfig,
        world: World,
        divided: Sequence[range],
        space: Space,
        dtype: torch.dtype,
        round_bytes: int,
    ) -> None:
        self._store, self._world, self._space, self._dtype = store, world, space, dtype
        self._divided, self._nodes = divided, divided[world.rank]
        mapped = together(world, lambda: [self._mapped(hops, hop) for hop in range(1, relation.order + 1)])
        wanted = together(world, lambda: self._wanted(mapped))
        self.border = Border(
            world, [ids - nodes.start for ids, nodes in zip(wanted, divided, strict=True)], round_bytes
        )
        edges, loops = together(world, lambda: self._edges(mapped, wanted))
        self.totals = together(world, lambda: space.tensor((len(self._nodes), relation.order), dtype))
        self.root: Tensor | None = None
        self.hops: list[Hop] = []
        for index, segments in enumerate(edges):
            hop = Hop(segments, loops if index == 0 else None)
            self.hops.append(self._weighted(hop, index) if relation.normalize else self._unweighted(hop, index))

    @property
    def num_sources(self) -> int:
        """The rows of this rank and those it borrows."""
        return len(self._nodes) + self.border.num_borrowed

    def store(self, states: Tensor, rows: slice, hidden: Tensor) -> None:
        """Put hidden rows among the states that hops sum."""
        if self.root is None:
            states[rows] = hidden
        else:
            torch.mul(hidden, self.root[rows, None], out=states[rows])

    def load(self, states: Tensor, rows: slice) -> Tensor:
        """Hidden rows as they were stored."""
        return states[rows] if self.root is None else states[rows] / self.root[rows, None]

    def sums(self, states: Tensor, rows: slice) -> list[Tensor]:
        """What rows get from each hop, [rows, c]."""
        return [hop.sums(rows, states) for hop in self.hops]

    def add_related(self, out: Tensor, rows: slice, sums: list[Tensor], maps: Tensor, offsets: Tensor) -> None:
        """Add the relational bias of rows to `out` [rows, c]: each hop's sums under its map [c, c] and offset [c]."""
        if self.hops:
            out.addmm_(self.totals[rows], offsets)
        for hop_sums, weight in zip(sums, maps, strict=True):
            out.addmm_(hop_sums, weight.t())

    def _mapped(self, hops: Hops, hop: int) -> list[InEdges]:
        kept = self._store if hop == 1 else hops.higher[hop - 2]
        return mapped_in_edges(kept, self._nodes)

    def _wanted(self, mapped: Sequence[Sequence[InEdges]]) -> list[Tensor]:
        """The node ids this rank needs from every rank, ascending."""
        if self._world.size == 1:
            return [torch.empty(0, dtype=torch.int64)]
        marks = self._space.tensor((self._store.num_nodes,), torch.bool)
        for segments in mapped:
            mark_sources(segments, marks.numpy())
        marks[self._nodes.start : self._nodes.stop] = False
        return [marks[nodes.start : nodes.stop].nonzero()[:, 0] + nodes.start for nodes in self._divided]

    def _edges(
        self, mapped: list[list[InEdges]], wanted: Sequence[Tensor]
    ) -> tuple[list[list[InEdges]], Tensor | None]:
        """Every edge of every hop once, from rows of this rank or borrowed ones, and who lacks a loop in the first."""
        if not mapped:
            return [], None
        loops = self._space.tensor((len(self._nodes),), self._dtype)
        missing_loops(mapped[0], self._nodes, loops)
        places = None
        if self._world.size > 1:
            table = self._space.tensor((self._store.num_nodes,), torch.int32)
            table[self._nodes.start : self._nodes.stop] = torch.arange(len(self._nodes), dtype=torch.int32)
            borrowed = torch.cat(list(wanted))
            table[borrowed] = torch.arange(len(borrowed), dtype=torch.int32) + len(self._nodes)
            places = table.numpy()
        elif not self._store.manifest.directed:
            return mapped, loops  # as they are: a symmetrized graph has every edge once
        return [renumbered(segments, places, self._space) for segments in mapped], loops

    def _unweighted(self, hop: Hop, index: int) -> Hop:
        self.totals[:, index] = together(self._world, lambda: self._in_degrees(hop))
        return hop

    def _weighted(self, hop: Hop, index: int) -> Hop:
        """The hop with weights: the first one's are on the rows it gets, the others' are relative to these."""
        degrees = together(self._world, lambda: self._in_degrees(hop))
        roots = self._out_roots(hop, degrees)
        hop = replace(hop, scale=degrees.rsqrt_())
        self._sum_weights(hop, index, roots)
        if self.root is None:
            self.root = roots
            return hop
        return replace(hop, weights=roots.div_(self.root))

    def _sum_weights(self, hop: Hop, index: int, roots: Tensor) -> None:
        def fill(rows: slice) -> None:
            self.totals[rows, index] = hop.sums(rows, roots[:, None])[:, 0]

        size = len(self._nodes)
        chunks = [slice(start, min(start + ROWS_AT_ONCE, size)) for start in range(0, size, ROWS_AT_ONCE)]
        with Workers() as workers:
            list(workers.map(fill, chunks))

    def _in_degrees(self, hop: Hop) -> Tensor:
        degrees = self._space.tensor((len(self._nodes),), self._dtype)
        for edges in hop.segments:
            rows = slice(edges.first, edges.stop)
            degrees[rows] = edges.indptr.diff()
            if hop.loops is not None:
                degrees[rows] += hop.loops[rows]
        return degrees

    def _out_roots(self, hop: Hop, in_degrees: Tensor) -> Tensor:
        """One over the root of every source's out-degree in the whole graph."""
        degrees, roots = together(
            self._world,
            lambda: [self._space.tensor((self.num_sources,), dtype) for dtype in (torch.float64, self._dtype)],
        )
        if self._store.manifest.directed:
            count_sources(hop, degrees)
            self.border.give_back(degrees)
        else:
            degrees[: len(in_degrees)] = in_degrees
        self.border.fetch(degrees)
        return roots.copy_(degrees).rsqrt_()
