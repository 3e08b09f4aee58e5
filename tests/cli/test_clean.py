"""nfdist clean shows what it would free and what that costs, and removes it only with --yes."""

import json
from pathlib import Path
from typing import Any

import pytest

from nfdist.cli.main import main
from nfdist.runs.ownership import owning
from nfdist.runs.run import Run
from tests.cleaning.building import content, leave_aside
from tests.runs.building import CONFIG, save


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A run with a checkpoint too many and states, and a graph with hops."""
    run = Run.create(tmp_path / "run", CONFIG, "")
    for step in (1, 2, 3):
        save(run, 2, step, keep=9)
    run.mark_best(2, 2, {"valid": 0.5})
    (run.path / "states").mkdir()
    (run.path / "states" / "hidden-0.npy").write_bytes(bytes(2048))
    (tmp_path / "graph.hops" / "order-2").mkdir(parents=True)
    (tmp_path / "graph.hops" / "order-2" / "file").write_bytes(bytes(1024))
    return tmp_path


def clean(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, Any, str]:
    assert main(["clean", *words, "--json"]) == 0
    captured = capsys.readouterr()
    table, _, facts = captured.out.rstrip("\n").rpartition("\n")
    return table, json.loads(facts), captured.err


def test_it_only_shows(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leave_aside(top)
    before = content(top)
    table, facts, errors = clean(capsys, str(top))
    assert (content(top), errors) == (before, "")
    assert table.splitlines()[0].startswith(f"{top}: would free ")
    assert "nothing was removed: give --yes" in table
    assert "more with --what states: states/ of evaluations; then nfdist predict does not answer" in table
    assert "more with --what hops" in table
    assert [Path(item["path"]).name[:13] for item in facts["items"]] == [".thing.tmp-41", "step-00000001"]
    assert not any(item["removed"] for item in facts["items"])
    assert (facts["freed_bytes"], facts["kept"]) == (0, [])
    assert facts["bytes"] == sum(item["bytes"] for item in facts["items"]) > 0


def test_it_removes_what_is_named(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, facts, _ = clean(capsys, str(top), "--what", "states,hops", "--yes")
    assert f"{top}: freed 3KiB" in table
    assert f"(states; then nfdist predict does not answer: nfdist evaluate {top}/run --no-outputs)" in table
    assert (facts["freed_bytes"], facts["what"]) == (3072, ["states", "hops"])
    assert not (top / "run" / "states").exists()
    assert not (top / "graph.hops").exists()
    assert len(Run.open(top / "run").checkpoint_paths(2)) == 3
    assert clean(capsys, str(top), "--what", "states")[0].splitlines()[0] == f"{top}: nothing to remove"


def test_what_stays_is_told(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with owning(top / "run" / "train.lock", "trained"):
        table, facts, errors = clean(capsys, str(top), "--what", "checkpoints,states", "--yes")
        assert {Path(one["path"]).name for one in clean(capsys, str(top))[1]["kept"]} == {"step-00000001"}
    assert table == f"{top}: nothing to remove"
    assert "states stays: the run is being trained by process" in errors
    assert {Path(one["path"]).name for one in facts["kept"]} == {"states", "step-00000001"}
    assert (top / "run" / "checkpoints" / "seed-2" / "step-00000001").exists()


@pytest.mark.parametrize("words", [["nosuch"], [".", "--what", "nosuch"], [".", "--what", ""], []])
def test_mistakes_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
