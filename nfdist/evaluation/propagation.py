"""Propagation: sums over the edges of a whole graph, Â_1 with its loops, for any rows of all nodes.

A product is made a chunk of rows at a time, by any number of ranks, in tensors that may lie in files.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from nfdist.collectives import together
from nfdist.config import RelationConfig
from nfdist.evaluation.budget import Budget
from nfdist.evaluation.placement import Placement, Room
from nfdist.graph.shard import Shard
from nfdist.graph.spill import Spill
from nfdist.log import Progress
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.world import World

EDGES = RelationConfig(order=1, normalize=True)  # what a shard must be of, or have in its first hop
LINE_BYTES = 64  # of a processor's cache
ROW_COPIES = 8  # more rows than the work on one holds at a time

Make = Callable[[slice], Tensor]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Propagation:
    """The edges around this rank's nodes. Every rank must make one, and call `put` together with the others."""

    shard: Shard
    room: Room
    world: World
    nodes: range
    dtype: torch.dtype

    @staticmethod
    def in_memory(
        store: Store,
        hops: Hops,
        relation: RelationConfig,
        world: World,
        divided: Sequence[range],
        dtype: torch.dtype,
        device: torch.device,
    ) -> "Propagation":
        """One whose edges and states are held on a device, without a limit. Every rank must call this."""
        nodes, spill = divided[world.rank], Spill()
        work_bytes = Budget.within(None, len(nodes)).work_bytes
        shard = Shard(store, hops, relation, world, divided, spill, dtype, work_bytes // 4).to(device, device)
        return Propagation(shard, Room(spill, Placement(device, device, work_bytes)), world, nodes, dtype)

    def tensor(self, *shape: int) -> Tensor:
        """Zeros, where states lie. Every rank must call this."""
        return together(self.world, lambda: self.room.tensor(shape, self.dtype))

    def states(self, width: int) -> Tensor:
        """Zeros [sources, at least `width`] for rows that are to be summed. Every rank must call this.

        A row that crosses no line of a cache for nothing is read in a good fifth less time: 47 classes take 48 columns.
        """
        line = LINE_BYTES // self.dtype.itemsize
        padded = -(-width // line) * line if width > line else 1 << (width - 1).bit_length()
        return self.tensor(self.shard.num_sources, padded)

    def each(self, work: Callable[[slice], Result], width: int, progress: Progress | None = None) -> list[Result]:
        """What some work on all of this rank's rows gives, a chunk at a time, in their order."""
        results = []
        with self.room.placement.workers(len(self.nodes)) as workers:
            chunks = self._chunks(width, workers.count)
            for rows, result in zip(chunks, workers.map(work, chunks), strict=True):
                results.append(result)
                if progress is not None:
                    progress.advance(rows.stop - rows.start)
        return results

    def put(self, states: Tensor, make: Make, width: int, progress: Progress | None = None) -> None:
        """Fill states with rows [rows, width], and with copies of other ranks' rows. Every rank must call this."""
        self.each(lambda rows: self.shard.store(states[:, :width], rows, make(rows)), width, progress)
        self.shard.fetch(states)

    def sums(self, states: Tensor, rows: slice, width: int) -> Tensor:
        """Â_1 of the rows that were put into states, at some rows, [rows, width]."""
        return self.shard.hops[0].sums(rows, states, states[rows])[:, :width]

    def load(self, states: Tensor, rows: slice, width: int) -> Tensor:
        """Rows [rows, width] as they were put into states."""
        return self.shard.load(states, rows)[:, :width]

    def _chunks(self, width: int, workers: int) -> list[slice]:
        size, placement = len(self.nodes), self.room.placement
        row_bytes = workers * ROW_COPIES * self.dtype.itemsize * width
        rows = max(1, min(placement.rows_at_once, placement.work_bytes // row_bytes, -(-size // workers)))
        return [slice(start, min(start + rows, size)) for start in range(0, size, rows)]
