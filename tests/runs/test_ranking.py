"""One order of scores, which knows missing ones."""

import math

import pytest

from nfdist.runs.ranking import improves, rank


def test_missing_scores_are_below_all_others() -> None:
    ordered = [{"valid": None}, {"valid": -2.0}, {"valid": 0}, {"valid": 0.5}]
    assert sorted([ordered[3], *ordered[:3]], key=rank) == ordered
    assert rank({}) == rank({"valid": math.nan}) == rank({"valid": None})


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
    assert improves({"valid": scores}, {"valid": best}) is expected
    assert improves({"valid": scores}, None)
