"""evaluation.json: what the last evaluation of a run came to, and how to recognize the files that evaluations left."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nfdist.errors import CheckpointError
from nfdist.runs.records import read_record, write_record
from nfdist.runs.run import Run
from nfdist.store.gate import Gate, StoredFile, recorded

EVALUATION_FILE = "evaluation.json"


@dataclass(frozen=True)
class EvaluationRecord:
    """`outcome` is what nfdist evaluate --json printed; `files` are those of this and earlier evaluations, by name.

    Each has its size, its checksums and the facts of the model that it was made by.
    """

    outcome: dict[str, Any]
    files: dict[str, dict[str, Any]]

    @staticmethod
    def read(run: Run) -> "EvaluationRecord | None":
        """The record of a run, None where none was written."""
        path = run.path / EVALUATION_FILE
        found = read_record(path, run.id, _cure(run.path))
        if found is None:
            return None
        outcome, files = found.get("outcome"), found.get("files")
        if not isinstance(outcome, dict) or not isinstance(files, dict):
            raise CheckpointError(f"{path} names no outcome and files: {_cure(run.path)}")
        return EvaluationRecord(outcome, files)


def write_evaluation(run: Run, outcome: Mapping[str, Any], model: Mapping[str, Any], names: Iterable[str]) -> None:
    """Record an evaluation that has written the files of these names; what earlier ones wrote stays recorded."""
    try:
        before = EvaluationRecord.read(run)
    except CheckpointError:  # it is written anew
        before = None
    files = {} if before is None else dict(before.files)
    for name in names:
        files[name] = {**asdict(recorded(run.path / name)), "model": dict(model)}
    write_record(run.path / EVALUATION_FILE, run.id, {"outcome": dict(outcome), "files": files})


@dataclass(frozen=True)
class Output:
    """A file that an evaluation left; `model` is what made it, None where that was not recorded, nor a checksum."""

    path: Path
    model: dict[str, Any] | None


def checked_output(run: Run, record: EvaluationRecord | None, name: str) -> Output | None:
    """A file of an evaluation, all of whose bytes are as they were written; None where there is none."""
    path = run.path / name
    if not path.exists():
        return None
    facts = dict(record.files.get(name, {})) if record is not None else {}
    if not facts:
        return Output(path, None)
    model = facts.pop("model", None)
    try:
        stored = StoredFile(**facts)
    except TypeError:
        raise CheckpointError(
            f"{run.path / EVALUATION_FILE} does not tell of {name} as it should: {_cure(run.path)}"
        ) from None
    Gate(path, stored, _cure(run.path), CheckpointError).check_all()
    return Output(path, model)


def _cure(run_path: Path) -> str:
    return f"nfdist evaluate {run_path} makes it anew"
