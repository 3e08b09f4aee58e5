"""Losses, scores and logits are those of golden.json, made by an earlier version of the code."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.cases import CASES, Case
from tests.golden.facts import differences, sampled
from tests.golden.running import run_cases

GOLDEN: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "golden.json").read_text())
ALONE = [case for case in CASES if case.world == 1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Graphs are made once."""
    return tmp_path_factory.mktemp("golden")


@pytest.mark.parametrize("case", ALONE, ids=lambda case: case.name)
def test_numbers_are_as_they_were(case: Case, folder: Path) -> None:
    assert_golden(case, run_cases([case], folder, "float64")[case.name])


def test_golden_file_has_every_case() -> None:
    assert list(GOLDEN) == [case.name for case in CASES]


def assert_golden(case: Case, facts: dict[str, Any]) -> None:
    apart = differences(sampled(facts), GOLDEN[case.name])
    assert {fact: difference for fact, difference in apart.items() if difference > case.tolerance} == {}
