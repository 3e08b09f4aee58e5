"""The edges inside a batch of nodes, in time proportional to the in-edges of its targets."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nfdist.errors import PartitionError
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
    weights: NDArray[np.float32] | None = None


class Induction:
    """Scratch of one entry a node, kept between batches: whether a node is a source, and its place among them."""

    def __init__(self, num_nodes: int) -> None:
        self._inside = np.zeros(num_nodes, dtype=bool)
        self._places = np.empty(num_nodes, dtype=np.int32)
        self._lock = Lock()

    def edges(
        self,
        targets: NDArray[np.int64],
        rows: NDArray[np.int64],
        groups: Iterable[tuple[MappedPart, slice]],
        sources: NDArray[np.int64],
        loops: bool,
        edges_at_once: int,
        weighted: bool = False,
    ) -> Adjacency:
        """The edges to targets from distinct sources, these by their places; if `weighted`, with what each weighs.

        Targets come ascending, in groups by part, with the row of each in the result; `loops` adds an edge from each to
        itself where it is a source. Threads work on so many edges at once.
        """
        place_bits = len(sources).bit_length()
        shifted = rows << place_bits
        work = [
            piece
            for part, group in groups
            for piece in _in_edges(part, targets[group], shifted[group], edges_at_once, weighted)
        ]
        with self._marked(sources):
            found = in_threads(self._edges_inside, work)
            if loops:
                inside = np.flatnonzero(self._inside.take(targets))
                added = shifted[inside] | self._places.take(targets[inside])
                found.append((added, np.ones(len(added), np.float32)))
        edges, weights = _distinct(
            np.concatenate([np.empty(0, dtype=np.int64), *(edges for edges, _ in found)]),
            np.concatenate([np.empty(0, np.float32), *(weights for _, weights in found)]) if weighted else None,
        )
        index_type = integer_type(max(len(targets), len(sources), len(edges)))
        indptr = offsets(np.bincount(edges >> place_bits, minlength=len(targets)), index_type)
        places = (edges & ((1 << place_bits) - 1)).astype(index_type)
        weighing = None if weights is None else torch.from_numpy(weights)
        return Adjacency(torch.from_numpy(indptr), torch.from_numpy(places), len(sources), weighing)

    @contextmanager
    def _marked(self, sources: NDArray[np.int64]) -> Iterator[None]:
        """The scratch is this batch's alone, and clean again afterwards."""
        places = np.arange(len(sources), dtype=np.int32)
        with self._lock:
            try:
                self._places[sources] = places
                repeated = np.flatnonzero(self._places.take(sources) != places)  # overwritten by a later place
                if len(repeated):
                    raise PartitionError(
                        f"node id {sources[repeated[0]]} is in the batch twice: give distinct node ids"
                    )
                self._inside[sources] = True
                yield
            finally:
                self._inside[sources] = False

    def _edges_inside(self, edges: InEdges) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Target row and source place, side by side in one integer, of every edge from a source of the batch.

        And the weight of each, if these edges have any.
        """
        # Positions are in range by construction; "clip" spares the copy that numpy's own check makes.
        positions = joined(edges.starts, edges.counts)
        sources = edges.sources.take(positions, mode="clip")
        kept = np.flatnonzero(self._inside.take(sources, mode="clip"))
        targets = edges.targets.take(np.searchsorted(np.cumsum(edges.counts), kept, side="right"))
        rows: NDArray[np.int64] = targets | self._places.take(sources.take(kept))
        weights = np.empty(0, np.float32) if edges.weights is None else edges.weights.take(positions.take(kept))
        return rows, weights


def _in_edges(
    part: MappedPart, node_ids: Integers, targets: Integers, edges_at_once: int, weighted: bool
) -> Iterator[InEdges]:
    starts, counts, sources = part.in_edges_of(node_ids - part.start)
    weights = part.weighing().at(starts, counts).numpy() if weighted else None
    for piece in pieces(counts, edges_at_once):
        yield InEdges(sources, starts[piece], counts[piece], targets[piece], weights)


def _distinct(
    edges: NDArray[np.int64], weights: NDArray[np.float32] | None
) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
    """Ascending, each once: a directed graph may list an edge twice, and a self-loop may be there already.

    All copies of an edge weigh the same, as they are stored.
    """
    if weights is None:
        edges.sort()
    else:
        order = np.argsort(edges)
        edges, weights = edges[order], weights[order]
    fresh = np.concatenate([np.ones(min(len(edges), 1), dtype=bool), edges[1:] != edges[:-1]])
    if fresh.all():
        return edges, weights
    return edges[fresh], None if weights is None else weights[fresh]
