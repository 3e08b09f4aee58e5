"""Pairs of a row and a number, as offsets [rows + 1] and numbers that ascend within a row, each pair once."""

import numpy as np
from numpy.typing import NDArray

from nfdist.store.ranges import joined

Numbers = NDArray[np.int64]
Weights = NDArray[np.float64]
Pairs = tuple[Numbers, Numbers]


def distinct(rows: Numbers, numbers: Numbers, num_rows: int, limit: int) -> Pairs:
    """The pairs of rows and numbers below `limit` that come in any order, and some of them more than once."""
    pairs = np.unique(rows * limit + numbers)
    return np.searchsorted(pairs, np.arange(num_rows + 1) * limit), pairs % limit


def summed(rows: Numbers, numbers: Numbers, weights: Weights, pairs: Pairs, limit: int) -> Weights:
    """What `distinct` pairs weigh: the sum of all weights that are there for one, NaN being none; without any, 1."""
    place = np.searchsorted(rows_of_pairs(pairs) * limit + pairs[1], rows * limit + numbers)
    there = ~np.isnan(weights)
    total, count = (np.bincount(place[there], some, len(pairs[1])) for some in (weights[there], None))
    return np.where(count > 0, total, 1.0)


def rows_of_pairs(pairs: Pairs) -> Numbers:
    """The row of every pair."""
    return np.repeat(np.arange(len(pairs[0]) - 1), np.diff(pairs[0]))


def followed(pairs: Pairs, first: Pairs, then: Pairs, limit: int) -> Pairs:
    """Pairs and, for every row, what `then` has for the rows that `first` has for it."""
    counts = np.diff(then[0])[first[1]]
    rows = np.concatenate([rows_of_pairs(pairs), np.repeat(rows_of_pairs(first), counts)])
    numbers = np.concatenate([pairs[1], then[1][joined(then[0][first[1]], counts)]])
    return distinct(rows, numbers, len(pairs[0]) - 1, limit)


def without(own: Numbers, pairs: Pairs) -> Pairs:
    """Pairs without those of a row and its own number."""
    indptr, numbers = pairs
    kept = others(own, pairs)
    return np.concatenate([[0], np.cumsum(kept)])[indptr], numbers[kept]


def others(own: Numbers, pairs: Pairs) -> NDArray[np.bool_]:
    """Which pairs `without` keeps."""
    kept: NDArray[np.bool_] = pairs[1] != own[rows_of_pairs(pairs)]
    return kept
