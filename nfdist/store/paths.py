"""Paths: who reaches the nodes of a part by one step more, a bounded number of paths at a time.

The definition is `Adjacency.after`. Here the ends of paths are integers of row and source, sorted while they are in a
core's cache, from in-edges as they lie on disk: neither the graph nor a part's pattern need fit in memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from nfdist.sparse.adjacency import Adjacency
from nfdist.store.arrow_files import integer_type
from nfdist.store.borrowed import Borrowed
from nfdist.store.ranges import Integers, joined, offsets, pieces
from nfdist.store.store import Store
from nfdist.store.threads import in_threads

PATHS_AT_ONCE = 1 << 20  # whose ends stay in a core's cache while they are sorted
BLOCK_PIECES = 4  # that each thread works on between two writes
PATH_BYTES = 100  # more than a path of a piece takes, with what was found in the pieces before it


class Rows(NamedTuple):
    """Sources of consecutive rows: sources[offsets[i] : offsets[i + 1]] are those of the i-th."""

    offsets: Integers
    sources: NDArray[Any]


class Reached(Protocol):
    """Who reaches the nodes of one part in at most so many steps, each node itself included."""

    def counts(self) -> Integers:
        """How many there are for each row."""
        ...

    def rows(self, start: int, stop: int) -> Rows:
        """Who they are, for some rows."""
        ...


@dataclass(frozen=True)
class FirstHop:
    """The in-edges of a part as they are stored, with a loop for every node; some may be there twice."""

    store: Store
    number: int

    def counts(self) -> Integers:
        indptr = self.store.in_edges(self.number)[0].numpy()
        return np.diff(indptr).astype(np.int64) + 1

    def rows(self, start: int, stop: int) -> Rows:
        indptr, sources = (column.numpy() for column in self.store.in_edges(self.number, start, stop))
        rows = np.arange(stop - start, dtype=np.int64)
        ends = indptr - indptr[0] + np.arange(len(indptr), dtype=np.int64)
        looped = np.empty(int(ends[-1]), sources.dtype)
        own = ends[1:] - 1  # the last place of each row
        inside = np.ones(len(looped), dtype=bool)
        inside[own] = False
        looped[inside] = sources[int(indptr[0]) : int(indptr[-1])]
        looped[own] = rows + (self.store.parts[self.number].start + start)
        return Rows(ends, looped)


@dataclass(frozen=True)
class KnownHop:
    """A pattern that was built before, or is kept."""

    pattern: Adjacency

    def counts(self) -> Integers:
        return np.diff(self.pattern.indptr.numpy())

    def rows(self, start: int, stop: int) -> Rows:
        indptr = self.pattern.indptr.numpy()[start : stop + 1]
        return Rows(indptr - indptr[0], self.pattern.sources.numpy()[int(indptr[0]) : int(indptr[-1])])


class InEdges(NamedTuple):
    """In-edges of some of the nodes asked for, `chosen` among them: sources[start : start + count] each."""

    chosen: Integers | slice
    starts: Integers
    counts: Integers
    sources: NDArray[Any]


@dataclass(frozen=True)
class Steps:
    """The in-edges of every node that a path here may go through: of the parts held, and borrowed ones."""

    store: Store
    borrowed: Borrowed | None = None

    def of(self, nodes: Integers) -> Iterator[InEdges]:
        """The in-edges of nodes in any order, some at a time; each node is among one of them."""
        if len(self.store.parts) == 1 and len(nodes):
            yield InEdges(slice(None), *self.store.in_edges_of(0, nodes))
            return
        numbers = self.store.part_numbers(nodes)
        order = np.argsort(numbers, kind="stable")  # in linear time, since these have 16 bits
        cuts = np.searchsorted(numbers[order], np.arange(len(self.store.parts) + 1))
        held = set(self.store.held_parts)
        for number in np.flatnonzero(np.diff(cuts)).tolist():
            chosen = order[cuts[number] : cuts[number + 1]]
            some = nodes[chosen]
            if number in held:
                yield InEdges(chosen, *self.store.in_edges_of(number, some - self.store.parts[number].start))
            else:
                assert self.borrowed is not None
                yield InEdges(chosen, *self.borrowed.in_edges_of(some))

    def degrees(self, nodes: Integers) -> NDArray[np.int64]:
        """How many in-edges each node has, as they are stored."""
        found = np.empty(len(nodes), dtype=np.int64)
        for edges in self.of(nodes):
            found[edges.chosen] = edges.counts
        return found


def count_paths(reached: Reached, steps: Steps) -> NDArray[np.int64]:
    """How many paths `extended` follows to each row: it has at most as many sources then."""
    counts = reached.counts()
    found = np.empty(len(counts), dtype=np.int64)

    def count(rows: slice) -> None:
        some = reached.rows(rows.start, rows.stop)
        ends = offsets(steps.degrees(some.sources) + 1)
        found[rows] = np.diff(ends[some.offsets])

    in_threads(count, list(pieces(counts, PATHS_AT_ONCE // 4)))
    return found


def extended(reached: Reached, steps: Steps, paths: Integers, at_once: int = PATHS_AT_ONCE) -> Iterator[Rows]:
    """Who reaches each row by one step more, each once and ascending, for some rows after another.

    `paths` are those of `count_paths`, of which a thread follows so many `at_once`.
    """
    for block in pieces(paths, max(1, torch.get_num_threads()) * BLOCK_PIECES * at_once):
        work = [slice(block.start + rows.start, block.start + rows.stop) for rows in pieces(paths[block], at_once)]
        found = in_threads(partial(reach, reached, steps, paths, at_once=at_once), work)
        counts = np.concatenate([counts for counts, _ in found])
        yield Rows(offsets(counts), np.concatenate([sources for _, sources in found]))


def reach(
    reached: Reached, steps: Steps, paths: Integers, rows: slice, at_once: int = PATHS_AT_ONCE
) -> tuple[Integers, NDArray[Any]]:
    """How many reach each of some rows by one step more, and who: each once and ascending within a row."""
    via = reached.rows(rows.start, rows.stop)
    num_rows, num_nodes = rows.stop - rows.start, steps.store.num_nodes
    if num_rows == 1 and paths[rows.start] > at_once:
        sources = _marked(via.sources, steps, at_once)
        return np.array([len(sources)]), sources
    bits = num_nodes.bit_length()
    kind = integer_type(num_rows << bits)
    row_keys = np.repeat(np.arange(num_rows, dtype=kind) << bits, np.diff(via.offsets))
    keys = [row_keys | via.sources.astype(kind, copy=False)]
    for edges in steps.of(via.sources):
        # Positions are in range by construction; "clip" spares the copy that numpy's own check makes.
        sources = edges.sources.take(joined(edges.starts, edges.counts), mode="clip").astype(kind, copy=False)
        sources |= np.repeat(row_keys[edges.chosen], edges.counts)
        keys.append(sources)
    ends = np.concatenate(keys)
    ends.sort()
    fresh = np.ones(len(ends), dtype=bool)
    np.not_equal(ends[1:], ends[:-1], out=fresh[1:])
    ends = ends[fresh]
    counts = np.diff(np.searchsorted(ends, np.arange(num_rows + 1, dtype=kind) << bits))
    ends &= (1 << bits) - 1
    return counts, ends.astype(integer_type(num_nodes), copy=False)


def _marked(via: NDArray[Any], steps: Steps, at_once: int) -> NDArray[Any]:
    """Who reaches a node by one step more, by a mark for every node: for a hub with more paths than fit a cache."""
    marks = np.zeros(steps.store.num_nodes, dtype=bool)
    marks[via] = True
    for some in pieces(steps.degrees(via), at_once):
        for edges in steps.of(via[some]):
            marks[edges.sources.take(joined(edges.starts, edges.counts), mode="clip")] = True
    return np.flatnonzero(marks).astype(integer_type(len(marks)), copy=False)
