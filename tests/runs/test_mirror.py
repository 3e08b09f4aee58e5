"""A mirror is the run directory elsewhere: a new host goes on from it, and its failures end no training."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from nfdist import settings
from nfdist.cli.main import main
from nfdist.errors import CheckpointError
from nfdist.remote import Remote
from nfdist.runs.mirror import fetch_mirrored
from nfdist.runs.run import Run
from tests.cli.runs import mistake
from tests.object_store import fake_store
from tests.training.building import build_partition, config_of, flat_weights

MIRROR = "fake://runs/one"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("mirror") / "graph")


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return fake_store(monkeypatch, tmp_path)[0] / "runs" / "one"


def words(graph: Path, run: Path, *overrides: str) -> list[str]:
    """A training with a checkpoint every two steps, two of them kept."""
    file = run.parent / "settings.toml"
    file.write_text(settings.dump(config_of(graph, run, "train.checkpoint_every=2", "train.keep=2")))
    return ["train", str(file), *overrides]


def content(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_the_mirror_is_the_run_directory(graph: Path, mirror: Path, tmp_path: Path) -> None:
    assert main(words(graph, tmp_path / "run", f"run.mirror={MIRROR}", "train.evaluate_every=1")) == 0
    assert content(mirror) == content(tmp_path / "run")
    assert "result.json" in content(mirror)
    assert "checkpoints/seed-0/best.json" in content(mirror)


def test_a_new_host_goes_on_from_the_mirror_as_if_nothing_had_happened(
    graph: Path, mirror: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(graph, tmp_path / "whole", "train.epochs=4")) == 0
    assert main(words(graph, tmp_path / "first", f"run.mirror={MIRROR}", "train.epochs=2")) == 0
    second = words(graph, tmp_path / "second", f"run.mirror={MIRROR}", "train.epochs=4")
    capsys.readouterr()
    assert "continue the run there with --resume" in mistake(capsys, *second)
    assert not (tmp_path / "second").exists()
    assert main([*second, "--resume"]) == 0
    assert "was fetched from run.mirror" in capsys.readouterr().err
    assert torch.equal(flat_weights(tmp_path / "second"), flat_weights(tmp_path / "whole"))
    assert content(mirror) == content(tmp_path / "second")
    # The first host is behind now: going on there would take the later checkpoints away.
    first = words(graph, tmp_path / "first", f"run.mirror={MIRROR}", "train.epochs=3", "--resume")
    before = content(mirror)
    assert main(first) == 2
    assert "has gone on to checkpoints/seed-0/step-" in capsys.readouterr().err
    assert content(mirror) == before


def test_a_mirror_that_fails_ends_no_training_and_is_told_of(
    graph: Path,
    mirror: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failing(self: Remote, file: Path, name: str) -> None:
        raise CheckpointError(f"{name}: no such network")

    with monkeypatch.context() as broken:
        broken.setattr(Remote, "send", failing)
        assert main(words(graph, tmp_path / "run", f"run.mirror={MIRROR}")) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "run.mirror" in line]
    assert "the training goes on: run.json: no such network" in told[0]
    assert told[-1].startswith("nfdist: warning: run.mirror lacks the last of")
    assert not mirror.exists()
    assert main(words(graph, tmp_path / "run", f"run.mirror={MIRROR}", "--resume")) == 0
    assert content(mirror) == content(tmp_path / "run")


def test_only_whole_checkpoints_are_fetched(graph: Path, mirror: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(words(graph, tmp_path / "run", f"run.mirror={MIRROR}")) == 0
    older, newer = sorted(mirror.glob("checkpoints/seed-0/step-*"))
    shutil.copytree(newer, newer.with_name("step-00000099"))
    (newer / "weights.safetensors").write_bytes(b"torn")
    (newer.with_name("step-00000099") / "state.json").unlink()
    assert fetch_mirrored(tmp_path / "new" / "run", MIRROR, "")
    assert "checkpoint of the mirror skipped" in capsys.readouterr().err
    run = Run.open(tmp_path / "new" / "run")
    assert [path.name for path in run.checkpoint_paths(0).values()] == [older.name]
    assert not [path for path in run.path.iterdir() if "fetched" in path.name]


def test_a_run_is_fetched_only_into_a_folder_of_its_own(graph: Path, mirror: Path, tmp_path: Path) -> None:
    assert not fetch_mirrored(tmp_path / "new", MIRROR, "")
    assert not (tmp_path / "new").exists()
    assert main(words(graph, tmp_path / "run", f"run.mirror={MIRROR}")) == 0
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "letter.txt").write_text("dear")
    with pytest.raises(CheckpointError, match=r"is no run, but holds letter\.txt"):
        fetch_mirrored(tmp_path / "new", MIRROR, "")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["letter.txt"]


def test_mistakes_are_one_line(graph: Path, mirror: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (mirror.parent / "other").mkdir(parents=True)
    (mirror.parent / "other" / "x").write_text("x")
    for override, line in (
        (
            "run.dir=fake://runs/one",
            "run.dir fake://runs/one is a URI: train in a folder of this host, and set run.mirror",
        ),
        ("run.mirror=backup", "run.mirror must be a URI"),
        ("run.mirror=fake://runs/other", "run.mirror fake://runs/other already holds files"),
        ("run.mirror=nosuch://runs", "nosuch://runs cannot be opened"),
    ):
        assert line in mistake(capsys, *words(graph, tmp_path / "run", override))
        assert not (tmp_path / "run").exists()
    compared = words(graph, tmp_path / "run", f"run.mirror={MIRROR}", "train.evaluate_every=1")[1:]
    assert "is for one run" in mistake(capsys, "compare", *compared)
    assert "RUN_DIR fake://runs/one is a URI" in mistake(capsys, "evaluate", "fake://runs/one")
