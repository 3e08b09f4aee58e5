"""Hops without a weight for every edge: Â_j as a pattern between a factor of each source and one of each target.

A hop sums over the sources of (A + I)^j, straight from the partition's mapped in-edges.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdist.devices import sent
from nfdist.graph.spill import Spill
from nfdist.sparse.spmm import segment_spmm
from nfdist.store.ranges import pieces
from nfdist.store.store import Store

EDGES_AT_ONCE = 1 << 19


@dataclass(frozen=True)
class EdgeSegment:
    """In-edges of consecutive rows, from `first` on: sources[indptr[i] : indptr[i + 1]] send to row first + i.

    In a weighted graph `weights` stand beside the sources.
    """

    first: int
    indptr: Tensor
    sources: Tensor
    weights: Tensor | None = None

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

    def on(self, device: torch.device) -> "EdgeSegment":
        """The same edges on a device; where each row's begin is asked of the CPU."""
        weights = None if self.weights is None else self.weights.to(device)
        return replace(self, sources=self.sources.to(device), weights=weights)

    def weights_of(self, rows: slice) -> Tensor | None:
        """The weights of the edges of some rows, counted from 0."""
        if self.weights is None:
            return None
        return self.weights[int(self.indptr[rows.start]) : int(self.indptr[rows.stop])]


def mapped_in_edges(store: Store, nodes: range, weighted: bool = False) -> list[EdgeSegment]:
    """The in-edges of a range of nodes as they are on disk, with node ids as sources."""
    found = []
    for number, part in enumerate(store.parts):
        start, stop = max(part.start, nodes.start), min(part.stop, nodes.stop)
        if start < stop:
            rows = number, start - part.start, stop - part.start
            weights = store.in_edge_weights(*rows) if weighted else None
            found.append(EdgeSegment(start - nodes.start, *store.in_edges(*rows), weights))
    return found


def mark_sources(segments: Sequence[EdgeSegment], marks: NDArray[np.bool_]) -> None:
    """Set the mark of every node that is a source."""
    for segment in segments:
        for _, _, sources in segment.pieces():
            marks[sources] = True


def missing_loops(segments: Sequence[EdgeSegment], nodes: range, missing: Tensor) -> None:
    """Set to 1 whatever node has no edge to itself; sources must be node ids."""
    missing.fill_(1)
    for segment in segments:
        for rows, offsets, sources in segment.pieces():
            first = nodes.start + segment.first
            targets = np.repeat(np.arange(first + rows.start, first + rows.stop), np.diff(offsets))
            missing[targets[sources == targets] - nodes.start] = 0


def renumbered(segments: Sequence[EdgeSegment], places: NDArray[Any] | None, spill: Spill) -> list[EdgeSegment]:
    """A copy with every edge once and, where there are places, the place of each source instead of its node id."""
    dtype, weighted = (
        segments[0].sources.dtype if segments else torch.int32,
        any(one.weights is not None for one in segments),
    )
    indptr = spill.tensor((sum(len(segment.indptr) for segment in segments),), torch.int64)
    num_edges = sum(segment.num_edges for segment in segments)
    sources = spill.tensor((num_edges,), dtype)
    weights = spill.tensor((num_edges,), torch.float32) if weighted else None
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
            weighing = segment.weights_of(rows)
            if weights is not None and weighing is not None:
                weights[used : used + len(kept)] = weighing[torch.from_numpy(fresh)]
            used += len(kept)
        copies.append(EdgeSegment(segment.first, ends, sources, weights))
        row += len(ends)
    return copies


@dataclass(frozen=True)
class Hop:
    """One Â_j of consecutive rows: `loops` [n] is the weight of a row for itself that no edge says, None where all do.

    `source_factors` [sources] multiply the states that are summed, `target_factors` [n] the sums; None is 1 for all.
    """

    segments: Sequence[EdgeSegment]
    loops: Tensor | None = None
    source_factors: Tensor | None = None
    target_factors: Tensor | None = None

    def sums(self, rows: slice, states: Tensor, own: Tensor) -> Tensor:
        """Â_j of states [sources, c] at some rows, whose `own` [rows, c] come by their loops."""
        parts = [self._sums(segment, piece, states) for segment, piece in self._pieces(rows)]
        out = parts[0] if len(parts) == 1 else torch.cat(parts)
        if self.loops is not None:
            out.addcmul_(self.loops[rows, None], own)
        return out if self.target_factors is None else out.mul_(self.target_factors[rows, None])

    def to(self, device: torch.device, *, edges: bool) -> "Hop":
        """The hop for states that lie on a device, with its edges there or, a piece at a time, on the way to it."""
        segments = [segment.on(device) for segment in self.segments] if edges else self.segments
        loops, sources, targets = (
            None if one is None else one.to(device) for one in (self.loops, self.source_factors, self.target_factors)
        )
        return Hop(segments, loops, sources, targets)

    def in_degrees(self, out: Tensor) -> Tensor:
        """How many edges end at every row, or what they weigh together, loops included, into `out` [n]."""
        for segment in self.segments:
            if segment.weights is None:
                out[segment.first : segment.stop] = segment.indptr.diff()
                continue
            for rows, offsets, _ in segment.pieces():
                counts, weights = np.diff(offsets), segment.weights_of(rows)
                assert weights is not None
                summed = np.bincount(np.repeat(np.arange(len(counts)), counts), weights.numpy(), len(counts))
                out[segment.first + rows.start : segment.first + rows.stop] = torch.from_numpy(summed)
        return out if self.loops is None else out.add_(self.loops)

    def add_out_degrees(self, out: Tensor) -> None:
        """Add 1 or its weight to a source's number in `out` [sources] for each of its edges, loops included."""
        one = out.new_ones(1)
        for segment in self.segments:
            for rows, _, sources in segment.pieces():
                weights = segment.weights_of(rows)
                added = one.expand(len(sources)) if weights is None else weights.to(out.dtype)
                out.index_add_(0, torch.from_numpy(sources), added)
        if self.loops is not None:
            out[: len(self.loops)] += self.loops

    def _pieces(self, rows: slice) -> Iterator[tuple[EdgeSegment, slice]]:
        """The segments that have these rows, and which of theirs, a bounded number of edges at a time."""
        first = bisect_right(self.segments, rows.start, key=lambda segment: segment.first) - 1
        for segment in self.segments[first:]:
            start, stop = max(rows.start, segment.first) - segment.first, min(rows.stop, segment.stop) - segment.first
            if start >= stop:
                break
            for piece in pieces(segment.indptr[start : stop + 1].diff().numpy(), EDGES_AT_ONCE):
                yield segment, slice(start + piece.start, start + piece.stop)

    def _sums(self, segment: EdgeSegment, rows: slice, states: Tensor) -> Tensor:
        indptr = segment.indptr[rows.start : rows.stop + 1]
        sources = sent(segment.sources[int(indptr[0]) : int(indptr[-1])], states.device)
        weights = None if self.source_factors is None else self.source_factors.index_select(0, sources)
        of_edges = segment.weights_of(rows)
        if of_edges is not None:
            of_edges = sent(of_edges, states.device).to(states.dtype)
            weights = of_edges if weights is None else weights.mul_(of_edges)
        offsets = sent((indptr - indptr[0]).to(sources.dtype), states.device)
        return segment_spmm(offsets, sources, states, weights)
