"""Worlds of 2 and 3 ranks compute what golden.json says."""

from typing import Any

import pytest

from tests.golden.cases import CASES, Case
from tests.golden.expected import assert_golden
from tests.golden.running import run_cases

TOGETHER = [case for case in CASES if case.world > 1]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All cases at once, since processes take longer to start than to train."""
    return run_cases(TOGETHER, tmp_path_factory.mktemp("golden"), "float64")


@pytest.mark.parametrize("case", TOGETHER, ids=lambda case: case.name)
def test_numbers_are_as_they_were(case: Case, facts: dict[str, Any]) -> None:
    assert_golden(case, facts[case.name])
