"""The small files of a run are what was written, and its own."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nfdist import settings
from nfdist.errors import CheckpointError
from nfdist.runs.run import Run
from tests.runs.building import CONFIG, save


@pytest.mark.parametrize("name", ["run.json", "config.toml", "result.json", "checkpoints/seed-0/best.json"])
def test_any_altered_byte_of_a_run_shows(run: Run, name: str) -> None:
    save(run, 0, 1)
    run.mark_best(0, 1, {"valid": 0.5})
    run.write_result({"best": {"test": 0.25}})
    path = run.path / name
    whole = path.read_bytes()
    positions = range(len(whole)) if len(whole) < 400 else range(0, len(whole), 7)
    for damaged in [b"", whole[:-1], whole + b"\n", *(_flipped(whole, position) for position in positions)]:
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=name.rpartition("/")[2]):
            _all_answers(run.path)
    path.write_bytes(whole)
    assert _all_answers(run.path) == (CONFIG, {"step": 1, "valid": 0.5}, {"best": {"test": 0.25}})


def _flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def _all_answers(path: Path) -> tuple[Any, ...]:
    opened = Run.open(path)
    return opened.config, opened.best_of(0), opened.result()


NEW_KEYS = ("format_version", "checksum", "run", "weights")


def make_unchecked(run: Run) -> Run:
    """The run as nfdist wrote it in format version 1."""
    (run.path / "config.toml").write_text(settings.dump(run.config))
    marker = {"format_version": 1, "nfdist": "0.1.0", "owner": run.owner}
    (run.path / "run.json").write_text(json.dumps(marker, indent=2) + "\n")
    for path in (run.path / "result.json", *run.path.glob("checkpoints/*/best.json")):
        plain = json.loads(path.read_bytes()) if path.exists() else None
        if plain is not None:
            path.write_text(json.dumps({key: plain[key] for key in plain if key not in NEW_KEYS}))
    return Run.open(run.path)


def test_a_run_of_format_version_1_is_read_and_goes_on(run: Run) -> None:
    save(run, 0, 1)
    run.mark_best(0, 1, {"valid": 0.5})
    run.write_result({"best": {"test": 0.25}})
    answers = _all_answers(run.path)
    old = make_unchecked(run)
    assert (old.id, old.owner) == ("", "launch-1")
    assert _all_answers(run.path) == answers
    old.mark_best(0, 1, {"valid": 0.75})
    old.write_result({"best": {"test": 0.5}})
    old.reconfigured(replace(CONFIG, train=replace(CONFIG.train, epochs=8)))
    opened = Run.open(run.path)
    assert (opened.config.train.epochs, opened.best_of(0), opened.result()) == (
        8,
        {"step": 1, "valid": 0.75},
        {"best": {"test": 0.5}},
    )
    for name in ("config.toml", "result.json", "checkpoints/seed-0/best.json"):  # what is new has its checksum
        content = (run.path / name).read_bytes()
        (run.path / name).write_bytes(_flipped(content, content.find(b"5" if name != "config.toml" else b"8")))
        with pytest.raises(CheckpointError, match="was altered"):
            _all_answers(run.path)
        (run.path / name).write_bytes(content)


@pytest.mark.parametrize("name", ["config.toml", "run.json", "result.json", "checkpoints/seed-0/best.json"])
def test_a_file_of_another_run_is_refused(run: Run, tmp_path: Path, name: str) -> None:
    other = Run.create(tmp_path / "other", CONFIG, "first")
    for one in (run, other):
        save(one, 0, 3)
        one.mark_best(0, 3, {"valid": 0.5})
        one.write_result({"metric": "accuracy"})
    (run.path / name).write_bytes((other.path / name).read_bytes())
    with pytest.raises(CheckpointError, match="is that of another run: "):
        _all_answers(run.path)
    assert _all_answers(other.path)[1] == {"step": 3, "valid": 0.5}


def test_a_mark_of_other_weights_is_refused(run: Run) -> None:
    for seed in (0, 1):
        save(run, seed, 3 + seed)
    run.mark_best(0, 3, {"valid": 0.5})
    mark = run.path / "checkpoints" / "seed-0" / "best.json"
    run.save_checkpoint(1, 3, {"weights": {"w": torch.ones(2)}, "optimizer": {}}, {}, 2)
    (run.path / "checkpoints" / "seed-1" / "best.json").write_bytes(mark.read_bytes())
    assert run.best_of(0) == {"step": 3, "valid": 0.5}
    with pytest.raises(CheckpointError, match=r"best\.json is not of the weights in step-00000003"):
        run.best_of(1)
