"""RowGraph: a symmetric graph read a few rows at a time, and how strongly each row is tied to every label around it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfdist import seeds

Integers = NDArray[np.integer[Any]]

# What is worked on at once stays in a cache: at 2^18 edges a pass took three quarters of its time at 2^20.
EDGES_AT_ONCE = 1 << 18
CHUNKS_AT_ONCE = 4  # computed from one state of the labels, so that results do not depend on the number of threads
_EDGES_OF_A_ROW = 1 << 20  # of a node with more edges as many are looked at, evenly, and weigh more
_CHUNKS_AT_LEAST, _ROWS_AT_LEAST = 128, 16  # neighbors rarely change together then, which could swap labels forever
_DENSE_LABELS = 64  # so few are counted in a table, more are sorted
_LABEL_BITS = 32
LABEL_MASK = (1 << _LABEL_BITS) - 1


@dataclass(frozen=True)
class LabelStrengths:
    """Ties of consecutive rows: `strength` of the edges from row `row` (counted from 0) to nodes that have `label`.

    Ascending by row, and each pair once.
    """

    row: NDArray[np.int64]
    label: NDArray[np.int64]
    strength: NDArray[np.int64]

    def to_own(self, own: Integers) -> NDArray[np.int64]:
        """How strongly every row is tied to its own label, [rows]."""
        found = np.flatnonzero(self.label == own[self.row])
        out = np.zeros(len(own), np.int64)
        out[self.row[found]] = self.strength[found]
        return out

    def strongest(self, num_rows: int, strength: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The label with the largest of some strengths [ties] at every row, and this strength; -1 where all are 0.

        Of equals the largest label wins.
        """
        labels, tops = np.full(num_rows, -1), np.zeros(num_rows, np.int64)
        if len(self.row):
            first = np.flatnonzero(np.diff(self.row, prepend=-1))
            top = np.maximum.reduceat(np.maximum(strength, 0) << _LABEL_BITS | self.label, first)
            tied = top > LABEL_MASK
            rows = self.row[first[tied]]
            labels[rows], tops[rows] = top[tied] & LABEL_MASK, top[tied] >> _LABEL_BITS
        return labels, tops


@dataclass(frozen=True)
class RowGraph:
    """In-edges of a symmetric graph, and what its nodes weigh: `columns`, each [n], that are to be balanced.

    Arrays may be mapped from disk: edges are read a chunk at a time and never held as a whole. Edges weigh 1 unless
    there are `edge_weights`.
    """

    indptr: Integers
    sources: Integers
    columns: tuple[Integers, ...]
    edge_weights: NDArray[np.int64] | None = None

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return int(self.indptr[-1])

    def totals(self) -> NDArray[np.int64]:
        """What all nodes weigh together, by column."""
        return np.array([column.sum(dtype=np.int64) for column in self.columns])

    def weights(self, rows: slice) -> NDArray[np.int64]:
        """What some nodes weigh, [rows, columns]."""
        return np.stack([column[rows] for column in self.columns], 1).astype(np.int64)

    def loads(self, parts: Integers, num_parts: int) -> NDArray[np.int64]:
        """What every part weighs, [parts, columns]."""
        loads = np.zeros((num_parts, len(self.columns)), np.int64)
        for start in range(0, self.num_nodes, EDGES_AT_ONCE):
            rows = slice(start, start + EDGES_AT_ONCE)
            loads += table_sums(parts[rows], self.weights(rows), num_parts)
        return loads

    def chunk_groups(self, seed: int, *path: str | int) -> Iterator[list[slice]]:
        """All rows in small chunks, a few of them together, in an order drawn from the seed."""
        chunks = self._chunks()
        groups = [chunks[start : start + CHUNKS_AT_ONCE] for start in range(0, len(chunks), CHUNKS_AT_ONCE)]
        for number in seeds.numpy_generator(seed, *path).permutation(len(groups)):
            yield groups[number]

    def _chunks(self) -> list[slice]:
        chunks, start = [], 0
        most_rows = max(_ROWS_AT_LEAST, -(-self.num_nodes // _CHUNKS_AT_LEAST))
        while start < self.num_nodes:
            fits = int(np.searchsorted(self.indptr, int(self.indptr[start]) + EDGES_AT_ONCE, side="right")) - 1
            stop = min(max(fits, start + 1), start + most_rows, self.num_nodes)
            chunks.append(slice(start, stop))
            start = stop
        return chunks

    def edges(self, rows: slice) -> tuple[NDArray[np.int64], Integers, NDArray[np.int64] | None]:
        """Target (counted from the first of these rows), source and weight of the edges of some rows, without loops.

        Weights are None where every edge weighs 1.
        """
        indptr = np.asarray(self.indptr[rows.start : rows.stop + 1])
        edges = slice(int(indptr[0]), int(indptr[-1]))
        weights = None if self.edge_weights is None else self.edge_weights[edges]
        if len(indptr) == 2 and edges.stop - edges.start > _EDGES_OF_A_ROW:
            step = -(-(edges.stop - edges.start) // _EDGES_OF_A_ROW)
            edges = slice(edges.start, edges.stop, step)
            sources = np.asarray(self.sources[edges])
            targets = np.zeros(len(sources), np.int64)
            weights = np.full(len(sources), step) if self.edge_weights is None else step * self.edge_weights[edges]
        else:
            targets = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
            sources = np.asarray(self.sources[edges])
        loops = sources == targets + rows.start
        if loops.any():
            kept = ~loops
            targets, sources, weights = targets[kept], sources[kept], None if weights is None else weights[kept]
        return targets, sources, weights

    def label_strengths(self, rows: slice, labels: NDArray[np.int32], num_labels: int) -> LabelStrengths:
        """How strongly some rows are tied to every label among their neighbors."""
        targets, sources, weights = self.edges(rows)
        if num_labels <= _DENSE_LABELS:
            num_rows = rows.stop - rows.start
            table = np.bincount(targets * num_labels + labels[sources], weights, minlength=num_rows * num_labels)
            found = np.flatnonzero(table)
            return LabelStrengths(found // num_labels, found % num_labels, table[found].astype(np.int64))
        keys = targets << _LABEL_BITS | labels[sources]
        keys, sums = summed(keys, weights)
        return LabelStrengths(keys >> _LABEL_BITS, keys & LABEL_MASK, sums)

    def cut(self, parts: NDArray[np.int32]) -> tuple[int, int]:
        """What the edges between parts weigh, and all edges but loops; each edge counts in both directions."""
        between = total = 0
        for rows in self._chunks():
            targets, sources, weights = self.edges(rows)
            apart = parts[rows][targets] != parts[sources]
            between += int(apart.sum() if weights is None else weights[apart].sum())
            total += int(len(apart) if weights is None else weights.sum())
        return between, total


def summed(keys: NDArray[np.int64], weights: NDArray[np.int64] | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every key once, ascending, and how often it is there or what its weights sum to. The keys given are sorted."""
    if weights is None:
        keys.sort()
    else:
        order = np.argsort(keys, kind="stable")
        keys, weights = keys[order], weights[order]
    fresh = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
    first = np.flatnonzero(fresh)
    if weights is None:
        return keys[first], np.diff(first, append=len(keys))
    return keys[first], np.add.reduceat(weights, first) if len(first) else weights


def table_sums(places: Integers, weights: NDArray[np.int64], num_places: int) -> NDArray[np.int64]:
    """Sums of the rows of weights [rows, columns] by place, [places, columns]."""
    sums = [np.bincount(places, column, minlength=num_places) for column in weights.T]
    return np.stack(sums, 1).astype(np.int64)


def sums_before(groups: Integers, weights: NDArray[Any]) -> NDArray[Any]:
    """For each row, what the rows before it in its group weigh; groups stand side by side."""
    if not len(groups):
        return weights
    before = np.cumsum(weights, axis=0) - weights
    first = np.flatnonzero(np.diff(groups, prepend=-1 if groups[0] != -1 else 0))
    sums: NDArray[Any] = before - np.repeat(before[first], np.diff(first, append=len(groups)), axis=0)
    return sums
