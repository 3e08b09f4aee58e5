"""One order of scores, which knows missing ones."""

import math

import pytest

from nfdist.runs.ranking import better, rank


def test_missing_scores_are_below_all_others() -> None:
    ordered: list[dict[str, float | None]] = [{"valid": None}, {"valid": -2.0}, {"valid": 0}, {"valid": 0.5}]
    assert sorted([ordered[3], *ordered[:3]], key=rank) == ordered
    assert rank({}) == rank({"valid": math.nan}) == rank({"valid": None})


def test_a_metric_may_be_better_when_it_is_smaller() -> None:
    best, worse, missing = ({"valid": valid, "larger_is_better": False} for valid in (0.1, 0.7, None))
    assert sorted([worse, best, missing], key=rank) == [missing, worse, best]
    assert better(best, worse)
    assert not better(worse, best)
    assert not better(missing, worse)


@pytest.mark.parametrize(
    ("scores", "best", "expected"),
    [
        (0.1, 0.2, False),
        (0.2, 0.2, False),
        (0.3, 0.2, True),
        (None, 0.2, False),
        (0.0, None, True),
        (None, None, True),
        (math.nan, None, True),
        (math.nan, 0.2, False),
    ],
)
def test_later_scores_take_the_place_of_lower_or_missing_ones(
    scores: float | None, best: float | None, expected: bool
) -> None:
    assert better({"valid": scores}, {"valid": best}) is expected
    assert better({"valid": scores}, None)
