"""The features of the rows of a part, from wherever they were read: this process, or the ranks that have them."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

from nfdist.collectives import largest, total
from nfdist.scratch import Scratch
from nfdist.store.arrow_files import integer_type
from nfdist.store.ranges import Integers, offsets, pieces
from nfdist.store.row_shares import RowShares, swap_arrays
from nfdist.store.source_graph import SourceGraph
from nfdist.world import World

ROWS_AT_ONCE, ENTRIES_AT_ONCE = 1 << 16, 1 << 22


class GivenRows:
    """Rows of the features of a graph, in `scratch`. Every rank must make one."""

    def __init__(self, graph: SourceGraph, scratch: Scratch, world: World) -> None:
        self._features, self._shares, self._scratch, self._world = graph.features, graph.shares, scratch, world
        if not scipy.sparse.issparse(graph.features):
            return
        lengths = np.diff(graph.features.indptr)
        num_entries = int(total(world, torch.tensor([graph.features.nnz]), "entries"))
        self._longest = int(largest(world, torch.tensor([int(lengths.max(initial=1))]), "entries"))
        self._index_type = integer_type(max(num_entries, graph.features.shape[1]))

    def take(self, wanted: Sequence[Integers]) -> tuple[NDArray[Any], ...]:
        """Dense rows [n, f], or the three parts of a CSR array with ascending columns, of the rows this rank wants.

        `wanted` has the rows of every rank, ascending. Every rank must call this.
        """
        sparse, own = scipy.sparse.issparse(self._features), wanted[self._world.rank]
        if self._shares is None or self._world.size == 1:
            return sparse_rows(self._features, own, self._index_type, self._scratch) if sparse else (self._dense(own),)
        if sparse:
            return self._delivered_entries(self._shares, wanted)
        return (self._delivered(self._shares, wanted, self._features, ROWS_AT_ONCE),)

    def _dense(self, rows: Integers) -> NDArray[Any]:
        chosen = as_slice(rows)
        if isinstance(chosen, slice):
            return np.ascontiguousarray(self._features[chosen])
        taken = self._scratch.array((len(rows), self._features.shape[1]), self._features.dtype)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            piece = slice(start, start + ROWS_AT_ONCE)
            np.take(self._features, rows[piece], axis=0, out=taken[piece], mode="clip")
        return taken

    def _delivered(
        self, shares: RowShares, wanted: Sequence[Integers], values: NDArray[Any], at_once: int
    ) -> NDArray[Any]:
        """Rows of what every rank has of its own."""
        own_rows = len(wanted[self._world.rank])
        taken = self._scratch.array((own_rows, *values.shape[1:]), values.dtype)
        for start, some in _by_turns(wanted, max(1, at_once // self._world.size)):
            rows = shares.deliver(some, values.__getitem__)
            taken[start : start + len(rows)] = rows
        return taken

    def _delivered_entries(self, shares: RowShares, wanted: Sequence[Integers]) -> tuple[NDArray[Any], ...]:
        features, own = self._features, shares.own
        lengths = self._delivered(shares, wanted, np.diff(features.indptr).astype(np.int64), ROWS_AT_ONCE)
        indptr = offsets(lengths, self._index_type)
        indices = self._scratch.array(int(indptr[-1]), self._index_type)
        values = self._scratch.array(int(indptr[-1]), features.dtype)
        at_once = max(1, min(ROWS_AT_ONCE, ENTRIES_AT_ONCE // self._longest) // self._world.size)
        for start, some in _by_turns(wanted, at_once):
            asked = [rows[(rows >= own.start) & (rows < own.stop)] - own.start for rows in some]
            outgoing = [features[rows] for rows in asked]
            for rows in outgoing:
                rows.sort_indices()
            ends = indptr[min(start, len(lengths)) + np.searchsorted(some[self._world.rank], shares.bounds)]
            counts, place = np.diff(ends).tolist(), slice(int(ends[0]), int(ends[-1]))
            sent = [rows.indices.astype(self._index_type, copy=False) for rows in outgoing]
            indices[place] = swap_arrays(self._world, sent, counts)
            values[place] = swap_arrays(self._world, [rows.data for rows in outgoing], counts)
        return indptr, indices, values


def _by_turns(wanted: Sequence[Integers], at_once: int) -> Iterator[tuple[int, list[Integers]]]:
    """Some of the rows that every rank wants at a time, with the place of the first ones."""
    for start in range(0, max(map(len, wanted)), at_once):
        yield start, [rows[start : start + at_once] for rows in wanted]


def sparse_rows(
    features: Any, rows: Integers, index_type: Any, scratch: Scratch
) -> tuple[Integers, Integers, NDArray[Any]]:
    """Some rows of a CSR array as its three parts, columns ascending within a row."""
    indptr = offsets(np.diff(features.indptr)[rows], index_type)
    indices = scratch.array(int(indptr[-1]), index_type)
    values = scratch.array(int(indptr[-1]), features.dtype)
    for piece in pieces(np.diff(indptr), ENTRIES_AT_ONCE):
        some = features[rows[piece]]
        some.sort_indices()
        place = slice(*indptr[[piece.start, piece.stop]])
        indices[place], values[place] = some.indices, some.data
    return indptr, indices, values


def as_slice(rows: Integers) -> Any:
    """Consecutive rows as a slice, which numpy takes without a copy."""
    consecutive = len(rows) > 0 and int(rows[-1]) - int(rows[0]) == len(rows) - 1  # rows of a part are ascending
    return slice(int(rows[0]), int(rows[-1]) + 1) if consecutive else rows
