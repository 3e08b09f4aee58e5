"""The edges inside a batch of nodes, in time proportional to the in-edges of its nodes."""

from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nfdist.sparse.adjacency import Adjacency
from nfdist.store.arrow_files import integer_type
from nfdist.store.mapped import MappedPart
from nfdist.store.ranges import Integers, joined, offsets, pieces
from nfdist.store.threads import in_threads

EDGES_AT_ONCE = 1 << 17  # small enough for a core's cache


class InEdges(NamedTuple):
    """In-edges of some targets: sources[start : start + count] each; `targets` are rows of the batch, shifted up."""

    sources: NDArray[Any]
    starts: Integers
    counts: Integers
    targets: Integers


class Induction:
    """Scratch of one entry a node, kept between batches: whether a node is in the batch, and its row there."""

    def __init__(self, num_nodes: int) -> None:
        self._inside = np.zeros(num_nodes, dtype=bool)
        self._local_rows = np.empty(num_nodes, dtype=np.int32)
        self._lock = Lock()

    def adjacency(
        self, node_ids: NDArray[np.int64], order: NDArray[np.int64], groups: Iterable[tuple[MappedPart, slice]]
    ) -> Adjacency:
        """The edges among distinct ascending node ids, whose rows in the batch are `order`, in groups by part."""
        row_bits = len(node_ids).bit_length()
        work = [piece for part, group in groups for piece in _in_edges(part, node_ids[group], order[group] << row_bits)]
        with self._lock:
            try:
                self._local_rows[node_ids] = order
                self._inside[node_ids] = True
                found = in_threads(self._edges_inside, work)
            finally:
                self._inside[node_ids] = False
        edges = np.concatenate([np.empty(0, dtype=np.int64), *found])
        edges.sort()
        index_type = integer_type(max(len(node_ids), len(edges)))
        indptr = offsets(np.bincount(edges >> row_bits, minlength=len(node_ids)), index_type)
        sources = (edges & ((1 << row_bits) - 1)).astype(index_type)
        return Adjacency(torch.from_numpy(indptr), torch.from_numpy(sources))

    def _edges_inside(self, edges: InEdges) -> NDArray[np.int64]:
        """Target row and source row, side by side in one integer, of every edge from a node of the batch."""
        # Positions are in range by construction; "clip" spares the copy that numpy's own check makes.
        sources = edges.sources.take(joined(edges.starts, edges.counts), mode="clip")
        kept = np.flatnonzero(self._inside.take(sources, mode="clip"))
        targets = edges.targets.take(np.searchsorted(np.cumsum(edges.counts), kept, side="right"))
        rows: NDArray[np.int64] = targets | self._local_rows.take(sources.take(kept))
        return rows


def _in_edges(part: MappedPart, node_ids: Integers, targets: Integers) -> Iterator[InEdges]:
    indptr, sources = part.indptr.numpy(), part.sources.numpy()
    rows = node_ids - part.start
    starts = indptr.take(rows).astype(np.int64, copy=False)
    counts = indptr.take(rows + 1) - starts
    for piece in pieces(counts, EDGES_AT_ONCE):
        yield InEdges(sources, starts[piece], counts[piece], targets[piece])
