"""The rule itself: each way to break it is seen, and what is allowed is not."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults import answers
from tests.faults.rule import check_ending, left_aside
from tests.faults.serving import Outcome

REFUSED = Outcome(2, False, False, False, 1 << 28, 1.0, "", "nfdist: evaluate: 0/9\nnfdist: x was altered: y\n")


def rules(outcome: Outcome, *codes: int) -> list[str]:
    return [problem.rule for problem in check_ending(outcome, 1 << 28, codes or (0, 2))]


def test_an_answer_and_a_refusal_in_one_line_are_allowed() -> None:
    assert rules(REFUSED) == []
    assert rules(replace(REFUSED, code=0, stderr="")) == []
    assert rules(replace(REFUSED, code=143), 0, 143) == []


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("code", {"code": 1}),
        ("code", {"code": 139, "killed": True}),
        ("traceback", {"code": 1, "stderr": "Traceback (most recent call last):\nValueError: x\n"}),
        ("traceback", {"code": 0, "stderr": "Traceback (most recent call last):\nValueError: x\n"}),
        ("line", {"stderr": ""}),
        ("line", {"stderr": "nfdist: x was altered: y\nand more\n"}),
        ("time", {"late": True, "code": 137}),
        ("memory", {"peak_bytes": 3 << 30}),
    ],
)
def test_each_way_to_break_the_rule_is_seen(rule: str, change: dict[str, object]) -> None:
    assert rules(replace(REFUSED, **change)) == [rule]  # type: ignore[arg-type]


def test_what_is_left_aside_is_seen(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert left_aside(tmp_path) == []
    (tmp_path / "run" / ".states.tmp-12-host-0a1b2c3d").touch()
    assert [problem.rule for problem in left_aside(tmp_path)] == ["left"]


def test_answers_differ_in_numbers_and_not_in_seconds() -> None:
    one = {"train": 0.5, "loss": [1.0, float("nan")], "seconds": 3.0}
    assert answers.difference(answers.timeless({**one, "seconds": 4.0}), answers.timeless(one)) == ""
    assert "train is 0.25" in answers.difference({**one, "train": 0.25}, one)
    assert "loss.0 is 2.0" in answers.difference({**one, "loss": [2.0, 1.0]}, one)
    assert "train is missing" in answers.difference({}, {"train": 0.5})
