"""Planned memory is within a quarter of what is measured, by benchmarks/plan.py and its cases."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.sources import SourceOptions

BENCHMARK = Path(__file__).parent.parent.parent / "benchmarks" / "plan.py"
CASES = (
    *("whole", "one-layer", "large-batch", "small-batch", "heads", "softmax", "dropout", "double", "evaluated"),
    *("words", "words-order-2", "wide", "branch", "recomputed", "recomputed-words", "gcn", "gcn-4", "mlp"),
    *("evaluate", "evaluate-words", "evaluate-limit", "evaluate-gcn", "evaluate-mlp", "evaluate-branch"),
    *("evaluate-heads", "predict", "hops"),
)


def compared(*words: str) -> float:
    """The planned memory of a case in parts of the measured one."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), *words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=280,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    ratio: float = found["planned"]["bytes"] / found["measured"]["bytes"]
    return ratio


def test_a_training_with_an_evaluation_takes_what_was_planned(tmp_path: Path) -> None:
    options = SourceOptions(scale=0.002)
    partition(Recipe("amazon2m-like", 2, str(tmp_path / "large"), "random", options=options))
    assert 0.75 < compared("evaluated", "--folder", str(tmp_path), "--step", "measure") < 1.25


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_case_takes_what_was_planned(case: str) -> None:
    assert 0.75 < compared(case, "--json") < 1.25
