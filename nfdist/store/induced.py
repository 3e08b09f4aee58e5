"""The edges inside a batch of nodes, in time proportional to the in-edges of its targets."""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
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


class Scratch(NamedTuple):
    """One entry a node: whether it is a source, and its place among them."""

    inside: NDArray[np.bool_]
    places: NDArray[np.int32]


class Induction:
    """Any number of threads may find edges at once; each then has a scratch of its own, kept for later batches."""

    def __init__(self, num_nodes: int) -> None:
        self._num_nodes = num_nodes
        self._unused: deque[Scratch] = deque()  # which threads may share

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
        with self._marked(sources) as scratch:
            found = in_threads(partial(_edges_inside, scratch), work)
            if loops:
                inside = np.flatnonzero(scratch.inside.take(targets))
                added = shifted[inside] | scratch.places.take(targets[inside])
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
    def _marked(self, sources: NDArray[np.int64]) -> Iterator[Scratch]:
        """A scratch that is this batch's alone, and clean again afterwards."""
        numbers = np.arange(len(sources), dtype=np.int32)
        scratch = self._taken()
        try:
            scratch.places[sources] = numbers
            repeated = np.flatnonzero(scratch.places.take(sources) != numbers)  # overwritten by a later place
            if len(repeated):
                raise PartitionError(f"node id {sources[repeated[0]]} is in the batch twice: give distinct node ids")
            scratch.inside[sources] = True
            yield scratch
        finally:
            scratch.inside[sources] = False
            self._unused.append(scratch)

    def _taken(self) -> Scratch:
        try:
            return self._unused.pop()
        except IndexError:
            return Scratch(np.zeros(self._num_nodes, dtype=bool), np.empty(self._num_nodes, dtype=np.int32))


def _edges_inside(scratch: Scratch, edges: InEdges) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Target row and source place, side by side in one integer, of every edge from a source of the batch.

    And the weight of each, if these edges have any.
    """
    # Positions are in range by construction; "clip" spares the copy that numpy's own check makes.
    positions = joined(edges.starts, edges.counts)
    sources = edges.sources.take(positions, mode="clip")
    kept = np.flatnonzero(scratch.inside.take(sources, mode="clip"))
    targets = edges.targets.take(np.searchsorted(np.cumsum(edges.counts), kept, side="right"))
    rows: NDArray[np.int64] = targets | scratch.places.take(sources.take(kept))
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
    # A stable sort merges what is in order already: targets, mostly, and then their loops.
    if weights is None:
        edges.sort(kind="stable")
    else:
        order = np.argsort(edges, kind="stable")
        edges, weights = edges[order], weights[order]
    fresh = np.concatenate([np.ones(min(len(edges), 1), dtype=bool), edges[1:] != edges[:-1]])
    if fresh.all():
        return edges, weights
    return edges[fresh], None if weights is None else weights[fresh]
