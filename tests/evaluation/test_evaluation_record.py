"""An evaluation's record recognizes its files, keeps those of earlier ones, and any altered byte of them shows."""

from pathlib import Path

import pytest

from nfdist.config import Config
from nfdist.errors import CheckpointError
from nfdist.evaluation.evaluation_record import EvaluationRecord, checked_output, write_evaluation
from nfdist.runs.run import Run

MODEL = {"seed": 0, "step": 7, "fingerprint": "abc"}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run.create(tmp_path / "run", Config(), "owner")
    for name in ("one.parquet", "two.parquet"):
        (run.path / name).write_bytes(name.encode() * 1000)
    return run


def test_files_of_earlier_evaluations_stay_recorded_with_their_model(run: Run) -> None:
    assert EvaluationRecord.read(run) is None
    write_evaluation(run, {"test": 0.5}, MODEL, ["one.parquet"])
    write_evaluation(run, {"test": float("nan")}, {**MODEL, "step": 9}, ["two.parquet"])
    record = EvaluationRecord.read(run)
    assert record is not None
    assert record.outcome == {"test": None}
    one, two = (checked_output(run, record, name) for name in ("one.parquet", "two.parquet"))
    assert one is not None
    assert two is not None
    assert one.model == MODEL
    assert two.model == {**MODEL, "step": 9}


def test_what_is_not_there_or_not_recorded_is_told_apart(run: Run) -> None:
    assert checked_output(run, None, "three.parquet") is None
    found = checked_output(run, None, "one.parquet")
    assert found is not None
    assert found.model is None


@pytest.mark.parametrize("content", [b"", b"one.parquet" * 999, b"two.parquet" * 1000])
def test_an_altered_file_is_refused(content: bytes, run: Run) -> None:
    write_evaluation(run, {}, MODEL, ["one.parquet"])
    (run.path / "one.parquet").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"one\.parquet .*: nfdist evaluate .* makes it anew"):
        checked_output(run, EvaluationRecord.read(run), "one.parquet")


def test_an_altered_record_is_refused_and_written_anew(run: Run) -> None:
    write_evaluation(run, {"test": 0.5}, MODEL, ["one.parquet"])
    path = run.path / "evaluation.json"
    path.write_text(path.read_text().replace("0.5", "0.6"))
    with pytest.raises(CheckpointError, match=r"evaluation\.json was altered since it was written"):
        EvaluationRecord.read(run)
    write_evaluation(run, {"test": 0.5}, MODEL, ["two.parquet"])
    record = EvaluationRecord.read(run)
    assert record is not None
    assert list(record.files) == ["two.parquet"]
