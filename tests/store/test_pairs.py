"""Pairs of rows and numbers behave as the sets they stand for."""

import numpy as np
import pytest

from nfdist.store.pairs import Pairs, distinct, followed, rows_of_pairs, summed, without

ROWS, LIMIT = 7, 5
Sets = list[set[int]]


def random_pairs(seed: int, limit: int, count: int = 20) -> tuple[Pairs, Sets]:
    stream = np.random.default_rng(seed)
    rows, numbers = stream.integers(ROWS, size=count), stream.integers(limit, size=count)
    sets: Sets = [set() for _ in range(ROWS)]
    for row, number in zip(rows.tolist(), numbers.tolist(), strict=True):
        sets[row].add(number)
    return distinct(rows, numbers, ROWS, limit), sets


def as_sets(pairs: Pairs) -> Sets:
    for start, stop in zip(pairs[0], pairs[0][1:], strict=False):
        assert (np.diff(pairs[1][start:stop]) > 0).all()  # ascending, each once
    return [set(pairs[1][start:stop].tolist()) for start, stop in zip(pairs[0], pairs[0][1:], strict=False)]


@pytest.mark.parametrize("seed", range(5))
def test_they_are_sets(seed: int) -> None:
    pairs, sets = random_pairs(seed, LIMIT)
    assert as_sets(pairs) == sets
    assert rows_of_pairs(pairs).tolist() == [row for row, numbers in enumerate(sets) for _ in numbers]
    own = np.random.default_rng(seed).integers(-1, LIMIT, size=ROWS)
    assert as_sets(without(own, pairs)) == [numbers - {int(one)} for numbers, one in zip(sets, own, strict=True)]


@pytest.mark.parametrize("seed", range(5))
def test_following_adds_what_the_rows_of_a_row_have(seed: int) -> None:
    (pairs, sets), (first, through), (then, reached) = (
        random_pairs(seed + 10 * place, limit) for place, limit in enumerate((LIMIT, ROWS, LIMIT))
    )
    wanted = [numbers.union(*(reached[row] for row in through[place])) for place, numbers in enumerate(sets)]
    assert as_sets(followed(pairs, first, then, LIMIT)) == wanted


def test_there_may_be_none() -> None:
    nothing = np.empty(0, np.int64)
    empty = distinct(nothing, nothing, 3, 5)
    assert as_sets(empty) == as_sets(followed(empty, empty, empty, 5)) == [set(), set(), set()]


def test_a_pair_weighs_what_is_said_of_it_or_1() -> None:
    stream = np.random.default_rng(3)
    rows, numbers = stream.integers(ROWS, size=60), stream.integers(LIMIT, size=60)
    weights = np.where(stream.random(60) < 0.5, np.nan, stream.random(60))
    pairs = distinct(rows, numbers, ROWS, LIMIT)
    for row, number, weight in zip(
        rows_of_pairs(pairs), pairs[1], summed(rows, numbers, weights, pairs, LIMIT), strict=True
    ):
        said = weights[(rows == row) & (numbers == number) & ~np.isnan(weights)]
        assert weight == pytest.approx(said.sum() if len(said) else 1.0)
