"""nfdist inspect recognizes partitions, runs and checkpoints, and reads all of what it vouches for."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from nfdist.cli.main import main
from nfdist.config import Config, DataConfig, TrainConfig
from nfdist.runs.run import Run
from tests.runs.building import flip
from tests.store.building import build_graph, write


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run.create(tmp_path / "run", Config(DataConfig("graphs/small"), train=TrainConfig(seeds=(4, 3))), "")
    tensors = {"weights": {"a": torch.ones(2, 3), "b": torch.ones(1)}, "optimizer": {"c": torch.ones(5)}}
    for seed, step in ((3, 20), (4, 10), (4, 20)):
        state = {"seed": seed, "epoch": step // 5, "step": step, "consumed": [1, 2]}
        run.save_checkpoint(seed, step, tensors, state, keep=2)
    run.mark_best(4, 10, {"epoch": 2, "valid": 0.75, "test": None})
    run.append({"kind": "step"})
    return run


def inspect(capsys: pytest.CaptureFixture[str], path: Path, code: int = 0) -> tuple[list[str], Any, str]:
    """The lines for people, the line for scripts and what went to stderr."""
    assert main(["inspect", str(path), "--json"]) == code
    captured = capsys.readouterr()
    *lines, last = captured.out.splitlines() or [""]
    return lines, json.loads(last or "null"), captured.err


def test_a_run_shows_its_settings_checkpoints_and_scores(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    lines, facts, errors = inspect(capsys, run.path)
    assert errors == ""
    assert lines[0].startswith(f"{run.path}: run on partition graphs/small, 3 checkpoints")
    assert lines[0].endswith("checksums hold")
    assert "seeds 4, 3; 1 lines of metrics" in lines[2]
    assert [line.split()[:3] for line in lines[4:]] == [["3", "20", "4"], ["4", "10", "2"], ["4", "20", "4"]]
    assert lines[5].endswith("best: step 10, epoch 2, valid 0.7500, test -")
    assert facts["verified"]
    assert (facts["seeds"], facts["epochs"], facts["metrics_lines"]) == ([4, 3], 100, 1)
    assert facts["best"] == {"4": {"step": 10, "epoch": 2, "valid": 0.75, "test": None}}
    assert facts["result"] is None
    assert [(item["seed"], item["step"], item["epoch"], item["best"]) for item in facts["checkpoints"]] == [
        (3, 20, 4, False),
        (4, 10, 2, True),
        (4, 20, 4, False),
    ]
    stored = sum(path.stat().st_size for path in run.path.rglob("*.safetensors"))
    assert facts["bytes"] == sum(item["bytes"] for item in facts["checkpoints"]) == stored


def test_a_run_without_checkpoints_and_one_with_a_result(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = Run.create(tmp_path / "empty", Config(), "")
    lines, facts, _ = inspect(capsys, empty.path)
    assert "0 checkpoints" in lines[0]
    assert (facts["checkpoints"], facts["best"]) == ([], {})
    result = {"metric": "accuracy", "test_mean": 0.5, "best": {"epoch": 2, "test": 0.5}, "per_seed": []}
    run.write_result(result)
    lines, facts, _ = inspect(capsys, run.path)
    assert lines[-2:] == ["  result: metric accuracy, test_mean 0.5000", "  best: epoch 2, test 0.5000"]
    assert facts["result"] == result


def test_a_damaged_checkpoint_of_a_run_is_shown_and_ends_with_2(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    flip(run.checkpoint_paths(4)[10] / "weights.safetensors", -1)
    lines, facts, errors = inspect(capsys, run.path, code=2)
    assert lines[0].endswith("1 damaged file")
    assert "weights.safetensors was altered" in lines[5]
    assert not facts["verified"]
    assert ["problem" in item for item in facts["checkpoints"]] == [False, True, False]
    assert errors.count("\n") == 1
    assert "step-00000010/weights.safetensors was altered" in errors


def test_every_damaged_file_of_a_run_is_shown_and_the_first_is_the_line(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run.write_result({"metric": "accuracy"})
    (run.path / "metrics.jsonl").write_text('{"a": 1}\n{"a"\n[\n{"a": 2}\n')
    lines, facts, errors = inspect(capsys, run.path, code=2)
    assert errors.count("\n") == 1
    assert "metrics.jsonl has no JSON in line 2" in errors
    assert (facts["metrics_lines"], facts["verified"], len(facts["problems"])) == (2, False, 1)
    flip(run.path / "result.json", 40)
    flip(run.path / "checkpoints" / "seed-4" / "best.json", 40)
    lines, facts, errors = inspect(capsys, run.path, code=2)
    assert errors.count("\n") == 1
    assert "best.json was altered since it was written" in errors
    assert "(and 2 more problems, see above)" in errors
    assert lines[0].endswith("3 damaged files")
    assert sum("was altered" in line or "has no JSON" in line for line in lines) == 3
    flip(run.path / "config.toml", 40)
    assert inspect(capsys, run.path, code=2)[2].startswith(f"nfdist: {run.path}/config.toml was altered")


def test_a_checkpoint_shows_its_state_and_tensors(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    lines, facts, _ = inspect(capsys, run.checkpoint_paths(3)[20])
    assert lines[0].endswith("2 tensor files, checksums hold")
    assert lines[1:] == [
        "  seed 3, epoch 4, step 20",
        "  weights: 7 numbers in 2 tensors",
        "  optimizer: 5 numbers in 1 tensors",
    ]
    assert facts["state"] == {"seed": 3, "epoch": 4, "step": 20, "consumed": [1, 2]}
    assert facts["verified"]


@pytest.mark.parametrize("file", ["weights.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_one_line(run: Run, capsys: pytest.CaptureFixture[str], file: str) -> None:
    path = run.checkpoint_paths(3)[20]
    flip(path / file, -3)
    lines, facts, errors = inspect(capsys, path, code=2)
    assert (lines, facts, errors.count("\n")) == ([], None, 1)
    assert f"{file} was altered" in errors
    (path / file).unlink()
    assert f"holds no {file}" in inspect(capsys, path, code=2)[2]


def test_a_partition_is_still_recognized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "p", build_graph())
    lines, facts, _ = inspect(capsys, tmp_path / "p")
    assert lines[0].startswith(f"{tmp_path / 'p'}: small, ")
    assert (facts["nodes"], facts["parts"], facts["verified"]) == (60, 3, False)


def test_what_is_none_of_them_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for path, message in (
        (tmp_path, "holds no manifest.json, run.json or state.json: it is no partition, run or checkpoint"),
        (tmp_path / "file", "is not a directory"),
        (tmp_path / "nowhere", "is not a directory"),
    ):
        errors = inspect(capsys, path, code=2)[2]
        assert errors.count("\n") == 1
        assert message in errors
