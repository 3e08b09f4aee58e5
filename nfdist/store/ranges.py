"""Ranges of positions joined without a loop: how rows of a compressed matrix are gathered."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.integer[Any]]


def joined(starts: Integers, counts: Integers) -> NDArray[np.int64]:
    """Every position of the ranges start .. start + count - 1, one range after another."""
    ends = np.cumsum(counts, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    positions = np.repeat(starts - (ends - counts), counts).astype(np.int64, copy=False)
    positions += np.arange(total)
    return positions


def pieces(counts: Integers, at_once: int) -> Iterator[slice]:
    """Consecutive rows whose counts sum to about `at_once`, or one row where a single one is larger."""
    ends = np.cumsum(counts, dtype=np.int64)
    start = 0
    while start < len(counts):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + at_once, side="right")))
        yield slice(start, stop)
        start = stop


def offsets(counts: Integers, index_type: Any = np.int64) -> Integers:
    """Where each row begins, and where the last one ends: [rows + 1]."""
    result = np.zeros(len(counts) + 1, dtype=index_type)
    np.cumsum(counts, out=result[1:])
    return result
