"""Edges on their way to the ranks that own their targets, in batches of a limited size."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nfdist.collectives import largest, tally, total
from nfdist.partitioning.duckdb_door import Columns
from nfdist.scratch import Scratch
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.ranges import Integers, joined, offsets, pieces
from nfdist.store.row_shares import RowShares, swap_arrays
from nfdist.world import World

Owners = Callable[[Integers], NDArray[Any]]  # the rank of every row


class EdgeExchange:
    """Edges by keys, the target in front of `bits` of the source; weighted ones also with their place and weight."""

    def __init__(self, world: World, bits: int, owners: Owners, weighted: bool) -> None:
        self._world, self._bits, self._owners = world, bits, owners
        self._none: Columns = (np.empty(0, np.int64),)
        if weighted:
            self._none = (*self._none, np.empty(0, np.int64), np.empty(0, np.float64))
        self._rounds = 0

    def count(self, batches: Iterable[Columns]) -> int:
        """How many edges will arrive here of all that the ranks have. Every rank must call this."""
        outgoing, own_batches = np.zeros(self._world.size, np.int64), 0
        for keys, *_ in batches:
            outgoing += np.bincount(self._owners(keys >> self._bits), minlength=self._world.size)
            own_batches += 1
        self._rounds = int(largest(self._world, torch.tensor([own_batches]), "edges"))
        return int(tally(self._world, torch.from_numpy(outgoing), "edges")[:, self._world.rank].sum())

    def exchanged(self, batches: Iterable[Columns]) -> Iterator[Columns]:
        """The edges of this rank, from the same batches as were counted. Every rank must take all of them."""
        given = iter(batches)
        for _ in range(self._rounds):
            yield self._swapped(next(given, self._none))

    def _swapped(self, columns: Columns) -> Columns:
        owners = self._owners(columns[0] >> self._bits)
        order, lengths = np.argsort(owners, kind="stable"), np.bincount(owners, minlength=self._world.size)
        counts = tally(self._world, torch.from_numpy(lengths), "edges")[:, self._world.rank].tolist()
        cuts = np.cumsum(lengths)[:-1]
        return tuple(swap_arrays(self._world, np.split(column[order], cuts), counts) for column in columns)


def move_rows(
    in_edges: Adjacency, shares: RowShares, owners: NDArray[Any], at_once: int, scratch: Scratch
) -> Adjacency:
    """The in-edges of the rows that are this rank's by `owners` [n], where every rank had those of its `shares`.

    About `at_once` edges travel at a time. Every rank must call this.
    """
    world, num_rows = shares.world, shares.num_rows
    indptr = in_edges.indptr.numpy()
    degrees = total(world, torch.from_numpy(np.diff(indptr)), "degrees").numpy()
    own_degrees = np.where(owners == world.rank, degrees, 0)
    moved = offsets(own_degrees.astype(np.int64), np.int64)
    columns = [in_edges.sources.numpy()] + ([] if in_edges.weights is None else [in_edges.weights.numpy()])
    found = [scratch.array(int(moved[-1]), column.dtype) for column in columns]
    places = moved[shares.bounds[:-1]].tolist()  # where what comes next from every rank belongs
    own = shares.own
    own_pieces = list(pieces(np.diff(indptr)[own], max(1, at_once // world.size)))
    for number in range(int(largest(world, torch.tensor([len(own_pieces)]), "edges"))):
        piece = own_pieces[number] if number < len(own_pieces) else slice(0, 0)
        rows = np.arange(own.start + piece.start, own.start + piece.stop)
        asked = [rows[owners[rows] == rank] for rank in range(world.size)]
        positions = [joined(indptr[some].astype(np.int64), degrees[some]) for some in asked]
        lengths = torch.tensor([len(some) for some in positions])
        counts = tally(world, lengths, "edges")[:, world.rank].tolist()
        for column, target in zip(columns, found, strict=True):
            arrived = swap_arrays(world, [column[some] for some in positions], counts)
            for rank, some in enumerate(np.split(arrived, np.cumsum(counts)[:-1])):
                target[places[rank] : places[rank] + len(some)] = some
        places = [place + count for place, count in zip(places, counts, strict=True)]
    index_type = np.int64 if max(len(found[0]), num_rows) >= 1 << 31 else np.int32
    weights = None if in_edges.weights is None else torch.from_numpy(found[1])
    return Adjacency(torch.from_numpy(moved.astype(index_type)), torch.from_numpy(found[0]), weights=weights)
