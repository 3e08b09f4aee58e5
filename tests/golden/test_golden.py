"""Losses, scores and logits are those of golden.json, made by an earlier version of the code."""

from pathlib import Path

import pytest

from tests.golden.cases import CASES, Case
from tests.golden.expected import GOLDEN, assert_golden
from tests.golden.running import run_cases
from tests.needs import MODELS_WITH_DGL, needs_dgl

ALONE = [
    pytest.param(case, marks=[needs_dgl] if case.name in MODELS_WITH_DGL else [], id=case.name)
    for case in CASES
    if case.world == 1
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Graphs are made once."""
    return tmp_path_factory.mktemp("golden")


@pytest.mark.parametrize("case", ALONE)
def test_numbers_are_as_they_were(case: Case, folder: Path) -> None:
    assert_golden(case, run_cases([case], folder, "float64")[case.name])


def test_golden_file_has_every_case() -> None:
    assert list(GOLDEN) == [case.name for case in CASES]
