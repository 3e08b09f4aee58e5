"""The checkpoints of a run: the newest and the best stay, and none is lost to a crash or a failed disk."""

import errno
import os
import shutil
import socket
import subprocess
import sys

import pytest

from nfdist.errors import CheckpointError
from nfdist.runs.checkpoint import Checkpoint
from nfdist.runs.run import Run
from tests.runs.building import fail_with, flip, last_step, names, save, steps


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
