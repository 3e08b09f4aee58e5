"""Shard: this rank's rows of the whole graph and the hops around them, worked out once for any number of evaluations.

States may lie elsewhere than where the work on their rows is done, as in the memory of a host beside its GPU. Sums over
edges are made where states lie: what crosses is then a row a node, however many edges it has.

States are kept multiplied by the source factors of the first hop, which then needs no weights; those of higher hops
are relative to them (docs/numerics.md#scaled-states).
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import torch
from torch import Tensor

from nfdist.collectives import together
from nfdist.config import RelationConfig
from nfdist.devices import reached
from nfdist.graph.halo import Halo
from nfdist.graph.hop import EdgeSegment, Hop, mapped_in_edges, mark_sources, missing_loops, renumbered
from nfdist.graph.neighbors import SummedNeighbors
from nfdist.graph.relation import degree_factors
from nfdist.graph.spill import Spill
from nfdist.graph.workers import Workers
from nfdist.memory import available_bytes
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.world import World

ROWS_AT_ONCE = 1 << 16


class Shard:
    """The hops around this rank's nodes. Every rank must make one; the store must hold the parts of its own nodes.

    `divided` are the nodes of all ranks. `totals` [n, hops] are the weights of each hop's edges, summed at their
    targets. `factors` [sources] is what states are multiplied by; None is 1 for all.
    """

    def __init__(
        self,
        store: Store,
        hops: Hops,
        relation: RelationConfig,
        world: World,
        divided: Sequence[range],
        spill: Spill,
        dtype: torch.dtype,
        round_bytes: int,
    ) -> None:
        self._store, self._world, self._spill, self._dtype = store, world, spill, dtype
        self._divided, self._nodes = divided, divided[world.rank]
        self._device = torch.device("cpu")
        kept = [store, *(one.local for one in hops.higher)][: relation.num_patterns]
        mapped = together(
            world,
            lambda: [mapped_in_edges(one, self._nodes, relation.weights and hop == 0) for hop, one in enumerate(kept)],
        )
        wanted = together(world, lambda: self._wanted(mapped))
        places = [node_ids - nodes.start for node_ids, nodes in zip(wanted, divided, strict=True)]
        self.halo = Halo.build(world, places, round_bytes)
        edges, loops = together(world, lambda: self._edges(mapped, wanted))
        self.totals = self._tensor(len(self._nodes), relation.num_patterns)
        self.factors: Tensor | None = None
        self.hops: list[Hop] = []
        for index, segments in enumerate(edges):
            hop = Hop(segments, loops if index == 0 else None)
            degrees = hop.in_degrees(self._tensor(len(self._nodes)))
            if relation.normalize:
                hop = self._normalized(hop, index, degrees)
            else:
                self.totals[:, index] = degrees
            self.hops.append(hop)

    def to(self, states: torch.device, work: torch.device, *, edges: bool = False) -> "Shard":
        """The shard for states that lie on a device, rows of which are worked on at another or the same one.

        `edges` says whether edges are kept where states lie, too.
        """
        moved = copy(self)
        moved._device = work
        moved.halo, moved.totals = self.halo.each(lambda rows: rows.to(states)), self.totals.to(states)
        moved.factors = None if self.factors is None else self.factors.to(states)
        moved.hops = [hop.to(states, edges=edges) for hop in self.hops]
        return moved

    @property
    def edge_bytes(self) -> int:
        """What the edges of all hops take."""
        segments = [segment for hop in self.hops for segment in hop.segments]
        kept = [one for segment in segments for one in (segment.sources, segment.weights) if one is not None]
        return sum(one.nbytes for one in kept)

    @property
    def num_sources(self) -> int:
        """The rows of this rank and the copies of others."""
        return len(self._nodes) + self.halo.num_copied

    def store(self, states: Tensor, rows: slice, hidden: Tensor) -> None:
        """Put hidden rows among the states that hops sum."""
        hidden = hidden.to(states.device)
        if self.factors is None:
            states[rows] = hidden
        else:
            torch.mul(hidden, self.factors[rows, None], out=states[rows])

    def load(self, states: Tensor, rows: slice | Tensor) -> Tensor:
        """Hidden rows as they were stored, a copy or a view."""
        rows = rows if isinstance(rows, slice) else rows.to(states.device)
        loaded = states[rows] if self.factors is None else states[rows] / self.factors[rows, None]
        return loaded.to(self._device)

    def fetch(self, states: Tensor) -> None:
        """Fill in the copies of other ranks' rows. Every rank must call this."""
        self.halo.each(lambda rows: rows.to(states.device)).fetch(states, self._world)
        if self._world.size > 1:  # with NCCL no collective fails by itself
            self._world.watch.wait_until(reached(self._device), "waiting for the device")

    def neighbors(self, states: Tensor, rows: slice, order: int | None = None) -> SummedNeighbors:
        """The neighbors of some rows up to an order; summed at once, since that leaves nothing in the caches."""
        sums = [hop.sums(rows, states, states[rows]).to(self._device) for hop in self.hops[:order]]
        return SummedNeighbors(sums, self.totals[rows, :order].to(self._device))

    def propagate(self, states: Tensor, rows: slice) -> Tensor:
        """Â_1 of states at some rows."""
        return self.hops[0].sums(rows, states, states[rows]).to(self._device)

    def source_factors(self, rows: slice) -> Tensor:
        """1 / sqrt(out-degree) of some rows in every hop, [rows, hops], where relations are normalized."""
        first = self.factors
        assert first is not None
        relative = [hop.source_factors for hop in self.hops]
        return torch.stack([first[rows] if one is None else first[rows] * one[rows] for one in relative], 1)

    def _tensor(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return together(self._world, lambda: self._spill.tensor(shape, dtype or self._dtype))

    def _wanted(self, mapped: Sequence[Sequence[EdgeSegment]]) -> list[Tensor]:
        """The node ids this rank needs from every rank, ascending."""
        if self._world.size == 1:
            return [torch.empty(0, dtype=torch.int64)]
        marks = self._spill.tensor((self._store.num_nodes,), torch.bool)
        for segments in mapped:
            mark_sources(segments, marks.numpy())
        marks[self._nodes.start : self._nodes.stop] = False
        return [marks[nodes.start : nodes.stop].nonzero()[:, 0] + nodes.start for nodes in self._divided]

    def _edges(
        self, mapped: list[list[EdgeSegment]], wanted: Sequence[Tensor]
    ) -> tuple[list[list[EdgeSegment]], Tensor | None]:
        """Every edge of every hop once, from rows of this rank or copies, and who lacks a loop in the first."""
        if not mapped:
            return [], None
        loops = self._spill.tensor((len(self._nodes),), self._dtype)
        missing_loops(mapped[0], self._nodes, loops)
        first, *higher = mapped
        if self._world.size == 1:
            if self._store.manifest.directed:  # whose edges may be listed twice; paths are there once
                first = renumbered(first, None, self._spill)
            return [first, *higher], loops
        table = self._spill.tensor((self._store.num_nodes,), torch.int32)
        table[self._nodes.start : self._nodes.stop] = torch.arange(len(self._nodes), dtype=torch.int32)
        copied = torch.cat(list(wanted))
        table[copied] = torch.arange(len(copied), dtype=torch.int32) + len(self._nodes)
        places, room = table.numpy(), available_bytes()
        paths = self._spill if self._spill.is_bounded or room is None else Spill(room // 4)
        return [renumbered(first, places, self._spill), *(renumbered(one, places, paths) for one in higher)], loops

    def _normalized(self, hop: Hop, index: int, in_degrees: Tensor) -> Hop:
        """The hop with its factors: the first one's are in the states, the others' are relative to these."""
        factors = self._source_factors(hop, in_degrees)
        hop = replace(hop, target_factors=degree_factors(in_degrees, self._dtype, out=in_degrees))

        def add_weights(rows: slice) -> None:
            self.totals[rows, index] = hop.sums(rows, factors[:, None], factors[rows, None])[:, 0]

        size = len(self._nodes)
        chunks = [slice(start, min(start + ROWS_AT_ONCE, size)) for start in range(0, size, ROWS_AT_ONCE)]
        with Workers() as workers:
            list(workers.map(add_weights, chunks))
        if self.factors is None:
            self.factors = factors
            return hop
        return replace(hop, source_factors=factors.div_(self.factors))

    def _source_factors(self, hop: Hop, in_degrees: Tensor) -> Tensor:
        """1 / sqrt(out-degree in the whole graph) of every source."""
        degrees, factors = self._tensor(self.num_sources, dtype=torch.float64), self._tensor(self.num_sources)
        if self._store.manifest.directed:
            hop.add_out_degrees(degrees)
            self.halo.accumulate(degrees, self._world)
        else:
            degrees[: len(in_degrees)] = in_degrees
        self.halo.fetch(degrees, self._world)
        return degree_factors(factors.copy_(degrees), self._dtype, out=factors)
