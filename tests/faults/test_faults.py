"""The rule holds: a sample of the faults in every test run, 1,000 of them among the slow tests."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import nfdist
from tests.faults.cases import FAMILIES
from tests.faults.engine import Engine

CODE = Path(nfdist.__file__).resolve().parents[1]
SEED = int(os.environ.get("NFDIST_FAULTS_SEED", "7"))
CASES = int(os.environ.get("NFDIST_FAULTS_CASES", "1000"))


def test_a_sample_of_faults_breaks_no_rule(tmp_path: Path) -> None:
    engine = Engine(CODE, tmp_path, seed=0, workers=1)
    try:
        names = engine.sample()
        report = engine.run(names)
    finally:
        engine.close()
    assert len(report.problems) >= 25
    assert not report.violations, report.summary()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_fault_breaks_the_rule(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    print(f"seed {SEED}: NFDIST_FAULTS_SEED chooses another, NFDIST_FAULTS_CASES how many")
    engine = Engine(CODE, tmp_path, SEED)
    try:
        report = engine.run(engine.table(CASES, FAMILIES))
    finally:
        engine.close()
    record_property("summary", f"faults drawn by seed {SEED}\n{report.summary()}")
    assert len(report.problems) + len(report.skipped) == CASES
    assert not report.violations, report.summary()
