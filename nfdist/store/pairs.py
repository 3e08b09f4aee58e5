"""Pairs of a row and a number, as offsets [rows + 1] and numbers that ascend within a row, each pair once."""

import numpy as np
from numpy.typing import NDArray

from nfdist.store.ranges import joined

Numbers = NDArray[np.int64]
Pairs = tuple[Numbers, Numbers]


def distinct(rows: Numbers, numbers: Numbers, num_rows: int, limit: int) -> Pairs:
    """The pairs of rows and numbers below `limit` that come in any order, and some of them more than once."""
    pairs = np.unique(rows * limit + numbers)
    return np.searchsorted(pairs, np.arange(num_rows + 1) * limit), pairs % limit


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
    kept = numbers != own[rows_of_pairs(pairs)]
    return np.concatenate([[0], np.cumsum(kept)])[indptr], numbers[kept]
