"""A run directory survives a crash at any point, and never mixes with what is not its own."""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from nfdist import files
from nfdist.errors import CheckpointError
from nfdist.runs.checkpoint import Checkpoint
from nfdist.runs.records import sealed, write_record
from nfdist.runs.run import Run
from tests.runs.building import CONFIG, flip, save


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def steps(run: Run, seed: int) -> list[int]:
    return list(run.checkpoint_paths(seed))


def last_step(run: Run, *seeds: int) -> tuple[int, int] | None:
    checkpoint = run.last_checkpoint(seeds)
    return None if checkpoint is None else (checkpoint.state["seed"], checkpoint.state["step"])


def fail_with(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)


def test_what_was_created_is_what_is_opened(run: Run) -> None:
    assert Run.open(run.path) == run
    assert (run.config, run.owner) == (CONFIG, "launch-1")
    assert Run.holds_run(run.path)
    assert names(run.path) == ["config.toml", "run.json"]


def test_a_run_is_begun_in_an_absent_or_empty_directory_only(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "deep" / "er"):
        assert Run.create(path, CONFIG, "") == Run.open(path)
    with pytest.raises(CheckpointError, match=r"run already holds a run: continue it with --resume, or choose another"):
        Run.create(run.path, CONFIG, "launch-2")
    assert Run.open(run.path) == run
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match=r"file is a file: choose another run\.dir"):
        Run.create(tmp_path / "file", CONFIG, "")
    with pytest.raises(CheckpointError, match="cannot be written"):
        Run.create(tmp_path / "file" / "run", CONFIG, "")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "config.toml").write_text("mine = 1")
    with pytest.raises(CheckpointError, match=r"full is no run, but holds config\.toml: choose another run\.dir"):
        Run.create(tmp_path / "full", CONFIG, "")
    assert (tmp_path / "full" / "config.toml").read_text() == "mine = 1"
    assert names(tmp_path / "full") == ["config.toml"]


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("renamed", [True, False])
def test_a_crash_while_a_run_is_begun_is_no_run_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, renamed: bool
) -> None:
    """The process ends before or after the rename of either file."""
    replace = Path.replace
    replaced: list[Path] = []

    def replace_or_die(self: Path, target: Path) -> None:
        if renamed or len(replaced) < after:
            replace(self, target)
        if len(replaced) == after:
            os._exit(9)
        replaced.append(target)

    if (child := os.fork()) == 0:
        try:
            monkeypatch.setattr(Path, "replace", replace_or_die)
            Run.create(tmp_path / "run", CONFIG, "first")
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert names(tmp_path / "run") != []
    if after and renamed:  # both files are there
        assert (Run.open(tmp_path / "run").config, Run.open(tmp_path / "run").owner) == (CONFIG, "first")
        return
    assert not Run.holds_run(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"holds no run\.json: it is no run"):
        Run.open(tmp_path / "run")
    assert Run.create(tmp_path / "run", CONFIG, "second").owner == "second"
    assert names(tmp_path / "run") == ["config.toml", "run.json"]


def test_what_is_no_usable_run_is_refused(run: Run, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere", run.path / "config.toml"):
        assert not Run.holds_run(path)
        with pytest.raises(CheckpointError, match=r"holds no run\.json: it is no run"):
            Run.open(path)
    for text, message in (("[modle]\n", "unknown section modle"), ("[\n", "config.toml is not valid TOML")):
        (run.path / "config.toml").write_text(sealed(text, run.id))
        with pytest.raises(CheckpointError, match=f"config.toml cannot be used: .*{message}"):
            Run.open(run.path)
    (run.path / "config.toml").unlink()
    with pytest.raises(CheckpointError, match=r"config.toml cannot be read \(No such file"):
        Run.open(run.path)
    for text, message in (
        ('{"format_version": 3}', "format version 3, this nfdist reads version 2"),
        ('{"format_version": 2, "nfdist": "0.1.0", "owner": ""}', "run.json was altered since it was written"),
        ('{"format_version": 1, "nfdist": "0.1.0"}', "format version 1, this nfdist reads version 2"),
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "not a JSON object"),
    ):
        (run.path / "run.json").write_text(text)
        with pytest.raises(CheckpointError, match=message):
            Run.open(run.path)


def test_truncation_undoes_what_was_appended_since(run: Run) -> None:
    metrics = run.metrics_file
    assert (run.metrics(), metrics.size_bytes) == ([], 0)
    metrics.truncate(0)
    run.append({"kind": "step", "loss": 0.1 + 0.2})
    size = metrics.size_bytes
    before = (run.path / "metrics.jsonl").read_bytes()
    assert size == len(before)
    run.append({"kind": "epoch", "name": "käse\n"})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "torn')
    assert run.metrics() == [{"kind": "step", "loss": 0.1 + 0.2}, {"kind": "epoch", "name": "käse\n"}]
    metrics.truncate(size)
    assert (run.path / "metrics.jsonl").read_bytes() == before
    metrics.truncate(size)
    run.append({"kind": "again"})
    assert run.metrics() == [{"kind": "step", "loss": 0.1 + 0.2}, {"kind": "again"}]
    metrics.truncate(0)
    assert run.metrics() == []


def test_metrics_are_json_even_where_numbers_are_not(run: Run) -> None:
    nan, infinity = float("nan"), float("inf")
    run.append({"loss": nan, "scores": [infinity, 1.5, (-infinity,)], "deep": {"valid": nan, "ok": 2}})
    expected = {"loss": None, "scores": [None, 1.5, [None]], "deep": {"valid": None, "ok": 2}}
    text = (run.path / "metrics.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == expected
    run.write_result({"best": {"test": nan}})
    assert run.result() == {"best": {"test": None}}


def test_lost_metrics_are_told_of_and_do_not_hold_up_a_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for step in range(4):
        run.append({"step": step, "filling": "x" * 50_000})
    size, path = run.metrics_file.size_bytes, run.path / "metrics.jsonl"
    os.truncate(path, size - 60_000)  # the last line, and some of the one before
    run.metrics_file.truncate(size)
    assert [line["step"] for line in run.metrics()] == [0, 1]
    run.append({"step": 2})
    assert [line["step"] for line in run.metrics()] == [0, 1, 2]
    path.unlink()
    run.metrics_file.truncate(size)
    assert run.metrics() == []
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 2
    assert f"metrics.jsonl has lost {size:,} of the {size:,} bytes it had at the checkpoint" in warnings[1]
    run.append({"step": 0})
    run.append({"step": 1})
    run.metrics_file.truncate(run.metrics_file.size_bytes - 1)  # a size that was none
    assert [line["step"] for line in run.metrics()] == [0]


def test_a_line_that_is_no_json_is_named(run: Run) -> None:
    (run.path / "metrics.jsonl").write_text('{"a": 1}\n{"a"\n{"a": 2}\n')
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl has no JSON in line 2"):
        run.metrics()


def test_a_checkpoint_never_knows_more_metrics_than_the_disk(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(files, "flush", lambda path: order.append(path.name))
    run.append({"step": 1})
    save(run, 0, 1)
    assert order[0] == "metrics.jsonl"


def test_pruning_keeps_the_newest_and_the_best(run: Run) -> None:
    for step in (1, 2, 3):
        save(run, 0, step, keep=9)
    run.mark_best(0, 2, {"valid": 0.5})
    save(run, 1, 1)
    for step, kept in ((4, [2, 3, 4]), (5, [2, 4, 5])):
        checkpoint = save(run, 0, step)
        assert (checkpoint.state["step"], steps(run, 0)) == (step, kept)
    run.mark_best(0, 5, {"valid": 0.6})
    save(run, 0, 100_000_000, keep=1)
    assert names(run.path / "checkpoints" / "seed-0") == ["best.json", "step-00000005", "step-100000000"]
    assert last_step(run, 0) == (0, 100_000_000)
    assert (run.seeds, steps(run, 1)) == ([0, 1], [1])
    assert all(Checkpoint.open(path) for seed in run.seeds for path in run.checkpoint_paths(seed).values())


def test_pruning_removes_neither_what_was_just_saved_nor_what_is_not_its_own(run: Run) -> None:
    folder = save(run, 0, 9).path.parent
    shutil.copytree(folder / "step-00000009", folder / "step-00000009.backup")
    (folder / "step-notes").write_text("mine")
    save(run, 0, 10)
    save(run, 0, 3)  # after a restart that forgot nothing
    save(run, 0, 11, keep=1)
    assert names(folder) == ["step-00000009.backup", "step-00000011", "step-notes"]
    run.mark_best(0, 11, {})
    save(run, 0, 3, keep=1)
    assert steps(run, 0) == [3, 11]


def test_a_checkpoint_of_the_same_step_is_replaced(run: Run) -> None:
    save(run, 0, 1, note="old")
    save(run, 0, 2, note="old")
    run.mark_best(0, 1, {})
    for note in ("new", "newer"):
        assert save(run, 0, 1, note=note).state["note"] == note
        assert names(run.path / "checkpoints" / "seed-0") == ["best.json", "step-00000001", "step-00000002"]
    path = run.checkpoint_paths(0)[1]
    shutil.copytree(path, path.with_name("step-00000001.replaced"))  # as a crash before pruning leaves it
    assert Checkpoint.open(run.checkpoint_paths(0)[1]).state["note"] == "newer"
    save(run, 0, 1, note="newest")
    assert names(run.path / "checkpoints" / "seed-0") == ["best.json", "step-00000001", "step-00000002"]
    assert Checkpoint.open(run.checkpoint_paths(0)[1]).state["note"] == "newest"


def test_a_failed_replacement_leaves_the_earlier_checkpoint(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2):
        save(run, 0, step, note="old")
    for note in ("failed", "failed again"):
        with monkeypatch.context() as patch:
            fail_with(patch, errno.ENOSPC)
            with pytest.raises(CheckpointError, match="is full: the checkpoint needs"):
                save(run, 0, 2, note=note)
        checkpoint = run.last_checkpoint([0])
        assert checkpoint is not None
        assert (checkpoint.state["step"], checkpoint.state["note"], steps(run, 0)) == (2, "old", [1, 2])
        run.mark_best(0, 2, {"valid": 1})
        run.forget_after(0, 2)
    save(run, 0, 2, note="new")
    assert names(run.path / "checkpoints" / "seed-0") == ["best.json", "step-00000001", "step-00000002"]
    best = run.best_checkpoint()
    assert best is not None
    assert best.state["note"] == "new"


def test_the_last_checkpoint_is_of_the_seed_trained_last(run: Run) -> None:
    assert last_step(run, 2, 1) is None
    save(run, 2, 50)
    assert last_step(run, 2, 1) == (2, 50)
    save(run, 1, 9)
    save(run, 1, 10)
    assert last_step(run, 2, 1) == (1, 10)
    assert last_step(run, 1, 2) == (2, 50)
    assert last_step(run, 2) == (2, 50)


def test_damaged_checkpoints_are_skipped_with_a_warning(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, step in ((2, 7), (1, 8), (1, 9)):
        save(run, seed, step)
    flip(run.checkpoint_paths(1)[9] / "weights.safetensors", -1)
    assert last_step(run, 2, 1) == (1, 8)
    (warning,) = capsys.readouterr().err.splitlines()
    assert "warning" in warning
    assert "seed-1/step-00000009/weights.safetensors was altered" in warning
    flip(run.checkpoint_paths(1)[8] / "state.json", 40)
    assert last_step(run, 2, 1) == (2, 7)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_the_best_is_a_saved_step_and_comes_back_with_its_scores(run: Run) -> None:
    assert run.best_of(0) is None
    with pytest.raises(CheckpointError, match="seed-0 holds no checkpoint of step 3: save it first"):
        run.mark_best(0, 3, {"valid": 1.0})
    save(run, 0, 3)
    run.mark_best(0, 3, {"epoch": 1, "valid": 0.25, "test": float("nan")})
    assert run.best_of(0) == {"step": 3, "epoch": 1, "valid": 0.25, "test": None}
    write_record(run.path / "checkpoints" / "seed-0" / "best.json", run.id, {"step": "3"})
    with pytest.raises(CheckpointError, match=r"best\.json names no step"):
        run.best_of(0)


@pytest.mark.parametrize(
    ("valid", "winner"),
    [
        ({}, None),
        ({5: None}, 5),
        ({5: None, 6: -1.0}, 6),
        ({10: 0.3, 3: None, 2: 0.9, 1: -1.0}, 2),
        ({11: 0.5, 2: 0.5, 3: 0.5}, 2),
    ],
)
def test_the_best_checkpoint_has_the_highest_valid_score_of_all_seeds(
    run: Run, valid: dict[int, float | None], winner: int | None
) -> None:
    for seed, score in valid.items():
        save(run, seed, 1)
        save(run, seed, 2)
        run.mark_best(seed, 1, {"valid": score})
    assert run.seeds == sorted(valid)
    best = run.best_checkpoint()
    assert (best and (best.state["seed"], best.state["step"])) == (winner and (winner, 1))


def test_no_other_stands_in_for_the_best_checkpoint(run: Run) -> None:
    path = save(run, 0, 1).path
    save(run, 0, 2)
    run.mark_best(0, 1, {"valid": 1.0})
    flip(path / "weights.safetensors", -1)
    with pytest.raises(CheckpointError, match="was altered"):
        run.best_checkpoint()
    files.remove(path)
    with pytest.raises(CheckpointError, match=r"seed-0 has its best scores from step 1, which is gone"):
        run.best_checkpoint()


@pytest.mark.parametrize(("step", "left", "best"), [(0, [], None), (2, [1, 2], None), (3, [1, 2, 3], 3)])
def test_forgetting_removes_what_is_later(run: Run, step: int, left: list[int], best: int | None) -> None:
    for saved in (1, 2, 3, 4):
        save(run, 0, saved, keep=9)
    save(run, 1, 9)
    run.mark_best(0, 3, {"valid": 1.0})
    run.forget_after(0, step)
    assert steps(run, 0) == left
    assert (run.best_of(0) or {}).get("step") == best
    assert steps(run, 1) == [9]
    run.forget_after(7, 0)


def test_what_a_killed_writer_left_is_removed_by_the_next_save(run: Run) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(timeout=60)
    save(run, 0, 1)
    folder = run.path / "checkpoints" / "seed-0"
    ours = f".step-00000002.tmp-{os.getpid()}-{socket.gethostname()}-00000000"
    for name in (ours, f".step-00000002.tmp-{process.pid}-{socket.gethostname()}-00000000"):
        (folder / name).mkdir()
        (folder / name / "weights.safetensors").write_text("torn")
    assert (steps(run, 0), last_step(run, 0)) == ([1], (0, 1))
    save(run, 0, 5)
    assert names(folder) == [ours, "step-00000001", "step-00000005"]


def test_the_result_is_absent_until_it_is_written(run: Run) -> None:
    assert run.result() is None
    for result in ({"metric": "accuracy"}, {"metric": "accuracy", "best": {"test": 0.5}}):
        run.write_result(result)
        assert run.result() == result
    assert names(run.path) == ["config.toml", "result.json", "run.json"]


@pytest.mark.parametrize(
    ("number", "message"), [(errno.ENOSPC, "the disk that holds .* is full"), (errno.EACCES, "Permission denied")]
)
def test_trouble_of_the_disk_is_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    save(run, 0, 1)
    fail_with(monkeypatch, number)
    for act in (
        lambda: Run.create(tmp_path / "other", CONFIG, ""),
        lambda: save(run, 0, 2),
        lambda: run.mark_best(0, 1, {}),
        lambda: run.write_result({}),
    ):
        with pytest.raises(CheckpointError, match=message) as caught:
            act()
        assert "\n" not in str(caught.value)
    assert (steps(run, 0), run.best_of(0), run.result()) == ([1], None, None)
    (run.path / "metrics.jsonl").mkdir()
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl cannot be written: .*Is a directory"):
        run.append({})


def test_the_best_is_known_without_its_mark(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """As after a crash between a checkpoint and its mark, or when the mark was lost or damaged."""
    best = {"step": 2, "valid": 0.75}
    for step, known in ((1, {"step": 1, "valid": 0.5}), (2, best), (3, best)):
        run.save_checkpoint(0, step, {"weights": {"a": torch.ones(1)}}, {"seed": 0, "step": step, "best": known}, 9)
        if step == 1:
            run.mark_best(0, 1, known)
    mark = run.path / "checkpoints" / "seed-0" / "best.json"
    for damage in (lambda: None, mark.unlink, lambda: flip(mark, 40)):
        damage()
        run.forget_after(0, 3)
        assert run.best_of(0) == best
        found = run.best_checkpoint()
        assert found is not None
        assert found.state["step"] == 2
        run.mark_again(0)
        assert run._marked(0) == best
    assert "best.json was altered" in capsys.readouterr().err
    flip(mark, 40)
    run.save_checkpoint(0, 4, {"weights": {}}, {"seed": 0, "step": 4, "best": best}, 1)  # no reason to end a training
    assert steps(run, 0) == [2, 4]
    files.remove(run.checkpoint_paths(0)[2])
    mark.unlink()
    with pytest.raises(CheckpointError, match="best scores from step 2, which is gone"):
        run.chosen_checkpoint()


def test_the_last_checkpoint_stands_in_only_audibly(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    save(run, 1, 5)
    (run.path / "evaluations.jsonl").touch()
    found = run.chosen_checkpoint()
    assert found is not None
    assert found.state["step"] == 5
    assert "has no best checkpoint yet: this is the last one, step-00000005" in capsys.readouterr().err
