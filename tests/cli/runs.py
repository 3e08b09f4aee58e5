"""A small run, trained once for all tests of the commands that use one."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from nfdist import settings
from nfdist.cli.main import main
from nfdist.world import World
from tests.training.building import build_partition, config_of, run_training


def train_run(folder: Path, *overrides: str) -> Path:
    """A run of two epochs and its graph, in `folder`/run and `folder`/graph."""
    graph = build_partition(folder / "graph")
    small = ("train.precision=float32", "train.checkpoint_every=4")
    run_training(World(), settings.dump(config_of(graph, folder / "run", *small, *overrides)))
    return folder / "run"


def copied(run: Path, folder: Path) -> Path:
    """A run of its own for a test that changes it."""
    return Path(shutil.copytree(run, folder / "run"))


def outcome(capsys: pytest.CaptureFixture[str], *words: str | Path | int) -> Any:
    """What the last line of a command that succeeds says."""
    assert main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def mistake(capsys: pytest.CaptureFixture[str], *words: str | Path | int) -> str:
    """The one line of a command that fails by a user's mistake."""
    assert main([*map(str, words)]) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if not line.startswith("nfdist: evaluate:")]
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("nfdist: ")
    return lines[0]
