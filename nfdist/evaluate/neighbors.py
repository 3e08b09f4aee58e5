"""Neighbors: whom the nodes of this rank hear directly, straight from the partition's mapped in-edges.

Hop j sums the rows of the sources of (A + I)^j, each weighted 1 / sqrt(d_in(target) d_out(source)). Rows come already
divided by the root of their out-degree in the first hop, so that it needs no weights; no hop has one for every edge.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from nfdist.evaluate.space import Space
from nfdist.store.ranges import pieces
from nfdist.store.store import Store

EDGES_AT_ONCE = 1 << 19


@dataclass(frozen=True)
class InEdges:
    """In-edges of consecutive rows, from `first` on: sources[indptr[i] : indptr[i + 1]] send to row first + i."""

    first: int
    indptr: Tensor
    sources: Tensor

    @property
    def stop(self) -> int:
        """The row after the last."""
        return self.first + len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return int(self.indptr[-1] - self.indptr[0])

    def pieces(self) -> Iterator[tuple[slice, NDArray[Any], NDArray[Any]]]:
        """A few rows at a time, counted from 0: where the edges of each begin and the last ones end, and sources."""
        indptr, sources = self.indptr.numpy(), self.sources.numpy()
        for rows in pieces(np.diff(indptr), EDGES_AT_ONCE):
            offsets = indptr[rows.start : rows.stop + 1]
            yield rows, offsets - offsets[0], sources[offsets[0] : offsets[-1]]


def mapped_in_edges(store: Store, nodes: range) -> list[InEdges]:
    """The in-edges of a range of nodes as they are on disk, with node ids as sources."""
    found = []
    for number, part in enumerate(store.parts):
        start, stop = max(part.start, nodes.start), min(part.stop, nodes.stop)
        if start < stop:
            found.append(InEdges(start - nodes.start, *store.in_edges(number, start - part.start, stop - part.start)))
    return found


def mark_sources(segments: Sequence[InEdges], marks: NDArray[np.bool_]) -> None:
    """Set the mark of every node that is a source."""
    for segment in segments:
        for _, _, sources in segment.pieces():
            marks[sources] = True


def missing_loops(segments: Sequence[InEdges], nodes: range, missing: Tensor) -> None:
    """Set to 1 whatever node has no edge to itself; sources must be node ids."""
    missing.fill_(1)
    for segment in segments:
        for rows, offsets, sources in segment.pieces():
            first = nodes.start + segment.first
            targets = np.repeat(np.arange(first + rows.start, first + rows.stop), np.diff(offsets))
            missing[targets[sources == targets] - nodes.start] = 0


def renumbered(segments: Sequence[InEdges], places: NDArray[Any] | None, space: Space) -> list[InEdges]:
    """A copy with every edge once and, where there are places, the place of each source instead of its node id."""
    dtype = segments[0].sources.dtype if segments else torch.int32
    indptr = space.tensor((sum(len(segment.indptr) for segment in segments),), torch.int64)
    sources = space.tensor((sum(segment.num_edges for segment in segments),), dtype)
    copies, used, row = [], 0, 0
    for segment in segments:
        ends = indptr[row : row + len(segment.indptr)]
        ends[0] = used
        for rows, offsets, some in segment.pieces():
            fresh = np.ones(len(some), dtype=bool)
            fresh[1:] = some[1:] != some[:-1]  # ascending, so that equal ones are side by side
            fresh[offsets[:-1][np.diff(offsets) > 0]] = True
            kept = some[fresh]
            counts = np.concatenate([[0], np.cumsum(fresh)])
            ends[rows.start + 1 : rows.stop + 1] = torch.from_numpy(counts[offsets[1:]] + used)
            sources[used : used + len(kept)] = torch.from_numpy(kept if places is None else places.take(kept))
            used += len(kept)
        copies.append(InEdges(segment.first, ends, sources))
        row += len(ends)
    return copies


@dataclass(frozen=True)
class Hop:
    """One relation of this rank's rows: `loops` [n] is 1 where a node also hears itself without an edge that says so.

    `weights` [sources] multiply what a source sends, `scale` [n] what a target gets; None is 1 for all.
    """

    segments: Sequence[InEdges]
    loops: Tensor | None = None
    weights: Tensor | None = None
    scale: Tensor | None = None

    def sums(self, rows: slice, sources: Tensor) -> Tensor:
        """What targets get, [rows, c], from the rows [sources, c]."""
        parts = [self._sums(edges, piece, sources) for edges, piece in self._pieces(rows)]
        out = parts[0] if len(parts) == 1 else torch.cat(parts)
        if self.loops is not None:
            out.addcmul_(self.loops[rows, None], sources[rows])
        return out if self.scale is None else out.mul_(self.scale[rows, None])

    def _pieces(self, rows: slice) -> Iterator[tuple[InEdges, slice]]:
        """The segments that have these rows, and which of theirs, a bounded number of edges at a time."""
        first = bisect_right(self.segments, rows.start, key=lambda edges: edges.first) - 1
        for edges in self.segments[first:]:
            start, stop = max(rows.start, edges.first) - edges.first, min(rows.stop, edges.stop) - edges.first
            if start >= stop:
                break
            indptr = edges.indptr[start : stop + 1]
            if int(indptr[-1] - indptr[0]) <= EDGES_AT_ONCE:
                yield edges, slice(start, stop)
            else:
                for piece in pieces(indptr.diff().numpy(), EDGES_AT_ONCE):
                    yield edges, slice(start + piece.start, start + piece.stop)

    def _sums(self, edges: InEdges, rows: slice, sources: Tensor) -> Tensor:
        indptr = edges.indptr[rows.start : rows.stop + 1]
        some = edges.sources[int(indptr[0]) : int(indptr[-1])]
        weights = None if self.weights is None else self.weights.index_select(0, some)
        offsets = (indptr - indptr[0]).to(some.dtype)
        return F.embedding_bag(some, sources, offsets, mode="sum", include_last_offset=True, per_sample_weights=weights)


def count_sources(hop: Hop, counts: Tensor) -> None:
    """Add 1 to a source's count for each of its edges, loops included."""
    one = counts.new_ones(1)
    for edges in hop.segments:
        for _, _, sources in edges.pieces():
            counts.index_add_(0, torch.from_numpy(sources), one.expand(len(sources)))
        if hop.loops is not None:
            counts[edges.first : edges.stop] += hop.loops[edges.first : edges.stop]
