"""Planned memory is within a quarter of what is measured, by benchmarks/plan.py and its cases."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parent.parent.parent / "benchmarks" / "plan.py"
QUICK = ("whole", "evaluate")
SLOW = (
    *("whole", "one-layer", "large-batch", "small-batch", "heads", "softmax", "dropout", "double", "evaluated"),
    *("words", "words-order-2", "wide", "branch", "gcn", "gcn-4", "mlp"),
    *("evaluate", "evaluate-words", "evaluate-limit", "evaluate-gcn", "predict"),
)


def compared(*words: str) -> list[tuple[str, float]]:
    """The planned memory of cases in parts of the measured one."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NFDIST_DATA": ""}
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--json", *words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment,
        timeout=280,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [(line["case"], line["planned"]["bytes"] / line["measured"]["bytes"]) for line in lines]


def test_a_training_and_an_evaluation_take_what_was_planned() -> None:
    found = compared(*QUICK, "--scale", "0.002")
    assert [case for case, _ in found] == list(QUICK)
    assert all(0.75 < ratio < 1.25 for _, ratio in found), found


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW)
def test_every_case_takes_what_was_planned(case: str) -> None:
    ((_, ratio),) = compared(case)
    assert 0.75 < ratio < 1.25
