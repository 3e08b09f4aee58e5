"""A run of rows goes on where it stopped, tells what failed, and ends its processes."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import run
from children import Children, RowError, StoppedError
from experiments import ROOT, Experiment
from results import read_result
from sources import located_source, partition_folder, row_digest, write_subset
from table import results_folder

from tests.paper.building import RecordedChildren

ROW = Experiment("digits", "stand-in", "digits", "NodeFormer", "launch/paper/mini-imagenet.toml", "digits")
OTHER = Experiment(
    "other", "stand-in", "digits", "NodeFormer", "launch/paper/mini-imagenet.toml", "digits", ("model.heads=1",)
)


def made_workshop(folder: Path, children: Children) -> run.Workshop:
    return run.Workshop(folder / "work", folder / "results", children)


def trainings(children: RecordedChildren) -> list[Sequence[str]]:
    return [command for command in children.asked if "train" in command]


def test_a_finished_row_is_not_run_again_unless_it_changed(tmp_path: Path) -> None:
    children = RecordedChildren()
    workshop = made_workshop(tmp_path, children)
    assert run.run_rows(workshop, [ROW, OTHER], 2, quick=False) == 0
    assert len(trainings(children)) == 2
    assert workshop.is_done(ROW)
    assert workshop.is_done(OTHER)
    changed = Experiment(**{**vars(ROW), "overrides": ("model.heads=2",)})
    assert not workshop.is_done(changed)
    assert [run.state_of(workshop, row) for row in (ROW, changed)] == ["done", "changed"]


@pytest.mark.parametrize(
    ("override", "same"),
    [
        ("train.ema=0.0", True),  # what it was before it existed
        ("train.ema=0.9", False),
        ("run.dir=elsewhere", True),
        ("model.heads=2", False),
    ],
)
def test_a_result_stays_that_of_its_row_as_long_as_the_row_means_the_same(override: str, same: bool) -> None:
    source = located_source(ROW)
    assert source is not None
    assert (row_digest(replace(ROW, overrides=(override,)), source) == row_digest(ROW, source)) == same


def test_a_failed_row_is_told_without_folders_and_tried_again(tmp_path: Path) -> None:
    workshop = made_workshop(tmp_path, RecordedChildren(broken="model.heads=1"))
    assert run.run_rows(workshop, [OTHER, ROW], 1, quick=False) == 1
    failed = read_result(tmp_path / "results", "other")
    assert failed is not None
    assert failed.failed == "exit code 1: launch is broken"
    assert not workshop.is_done(OTHER)
    assert workshop.is_done(ROW)
    assert run.state_of(workshop, OTHER) == "failed"


def test_a_result_holds_what_the_table_needs(tmp_path: Path) -> None:
    result = made_workshop(tmp_path, RecordedChildren()).make(OTHER)
    source = located_source(OTHER)
    assert source is not None
    assert (result.metric, result.epochs, result.seconds) == ("accuracy", 250, 3.0)
    assert result.mean == pytest.approx(40.0)
    assert result.digest == row_digest(OTHER, source)
    assert result.command == "nfdist train launch/paper/mini-imagenet.toml model.heads=1"
    assert str(tmp_path) not in (tmp_path / "results" / "other.json").read_text()


def test_every_row_has_a_folder_for_its_very_settings_and_resumes_in_it(tmp_path: Path) -> None:
    children = RecordedChildren()
    workshop = made_workshop(tmp_path, children)
    digest = workshop.make(OTHER).digest
    (command,) = trainings(children)
    assert f'run.dir="{tmp_path}/work/runs/other-{digest}"' in command
    assert {"--resume", "--json", "model.heads=1", "observe.port=0"} <= set(command)
    source = located_source(OTHER)
    assert source is not None
    assert partition_folder(OTHER, source, tmp_path) == partition_folder(ROW, source, tmp_path)


def test_a_learner_of_all_pairs_has_options_of_its_own(tmp_path: Path) -> None:
    children = RecordedChildren()
    row = replace(OTHER, script="prognn", overrides=("train.seeds=[3, 4]",), options=("--steps", "7"))
    result = made_workshop(tmp_path, children).make(row)
    (command,) = (command for command in children.asked if "partition" not in command)
    assert command[1].endswith("benchmarks/paper/prognn.py")
    wanted = ["--seeds", "3,4", "--epochs", "250", "--split", "random:0.5/0.25/0.25", "--metric", "accuracy"]
    assert list(command[4:]) == [*wanted, "--steps", "7", "--json"]
    assert result.command.endswith("prognn.py --partition partitions/digits " + " ".join([*wanted, "--steps", "7"]))
    source = located_source(row)
    assert source is not None
    digests = {
        row_digest(replace(row, options=options), source) for options in ((), ("--steps", "7"), ("--steps", "8"))
    }
    assert len(digests) == 3


def test_features_of_images_are_made_once_and_found_in_the_place_of_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class RecordedFolders(RecordedChildren):
        """Makes what is asked for, and remembers where a source was looked for."""

        def __init__(self) -> None:
            super().__init__()
            self.folders: list[str] = []

        def run(self, command: Sequence[str], environment: dict[str, str], log: Path) -> str:
            if "--out" in command:
                made = Path(command[command.index("--out") + 1])
                made.parent.mkdir(parents=True, exist_ok=True)
                made.touch()
                self.folders.append(environment["NFDIST_DATA"])
            return super().run(command, environment, log)

    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "fashion-mnist.npz", feat=np.eye(50, 9, dtype=np.uint8), label=np.arange(50))
    monkeypatch.setenv("NFDIST_DATA", str(tmp_path / "data"))
    children = RecordedFolders()
    pixels = Experiment("p", "stand-in", "p", "NodeFormer", "launch/paper/mini-imagenet.toml", "fashion-mnist", rows=20)
    rows = [replace(pixels, recipe=f"fashion-features-k{k}", image_features=True) for k in (5, 10)]
    workshop = made_workshop(tmp_path, children)
    source = located_source(pixels)
    assert source is not None
    for row in (pixels, *rows):
        workshop.partition(row, source)
    subset, features = (str(tmp_path / "work" / "sources" / f"fashion-mnist-20{end}") for end in ("", "-features"))
    assert children.folders == [subset, subset, features, features]
    assert [command[1].endswith("image_features.py") for command in children.asked] == [False, True, False, False]
    assert children.asked[1][2:] == [f"{subset}/fashion-mnist.npz", "--out", f"{features}/fashion-mnist.npz"]
    assert row_digest(rows[0], source) != row_digest(replace(rows[0], image_features=False), source)


def test_a_process_that_fails_is_told_by_its_last_line(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import sys; print('first', file=sys.stderr); sys.exit('then this')"]
    with pytest.raises(RowError, match="exit code 1: then this"):
        Children().run(words, dict(os.environ), tmp_path / "log")


def test_stopping_ends_the_processes_and_starts_no_more(tmp_path: Path) -> None:
    children = Children()
    ended: list[type[BaseException]] = []

    def sleep() -> None:
        try:
            children.run([sys.executable, "-c", "import time; time.sleep(60)"], dict(os.environ), tmp_path / "log")
        except StoppedError as error:
            ended.append(type(error))

    thread = threading.Thread(target=sleep)
    thread.start()
    while not children._running:
        time.sleep(0.01)
    children.stop()
    thread.join(20)
    assert ended == [StoppedError]
    with pytest.raises(StoppedError):
        children.run(["true"], dict(os.environ), tmp_path / "log")


def test_a_subset_is_drawn_once_from_all_rows(tmp_path: Path) -> None:
    whole = tmp_path / "whole.npz"
    np.savez(whole, feat=np.arange(300, dtype=np.uint8).reshape(100, 3) % 251, label=np.arange(100))
    write_subset(whole, tmp_path / "part" / "whole.npz", 20)
    with np.load(tmp_path / "part" / "whole.npz") as arrays:
        labels, features = arrays["label"], arrays["feat"]
    assert len(set(labels.tolist())) == 20
    assert labels.max() > 40
    with np.load(whole) as arrays:
        assert np.allclose(features * 250, arrays["feat"][labels])


def run_script(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "NFDIST_DATA"} | variables
    script = [sys.executable, str(ROOT / "benchmarks" / "paper" / "run.py")]
    environment["PYTHONPATH"] = str(ROOT)
    return subprocess.run([*script, *words], env=environment, capture_output=True, text=True, timeout=120)


def test_without_data_it_is_one_line(tmp_path: Path) -> None:
    done = run_script("--work", str(tmp_path))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "NFDIST_DATA is not set" in done.stderr
    done = run_script("--only", "cora", NFDIST_DATA="/nowhere")
    assert (done.returncode, done.stderr) == (2, "NFDIST_DATA names /nowhere, which is not a folder\n")
    assert run_script("--only", "nothing*").returncode == 2


def test_a_quick_row_from_data_to_table_and_again(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 80)
    features, edges = np.eye(2, dtype=np.float32)[labels], generator.integers(0, 80, (2, 200))
    np.savez(tmp_path / "actor.npz", label=labels, feat=features, edge_index=edges)
    words = (
        "--quick",
        "--only",
        "actor",
        "--work",
        str(tmp_path / "work"),
        "--results",
        str(tmp_path / "results-quick"),
    )
    first = run_script(*words, NFDIST_DATA=str(tmp_path))
    assert first.returncode == 0, first.stderr
    result = read_result(tmp_path / "results-quick", "actor")
    assert result is not None
    assert (result.failed, len(result.per_seed), result.epochs) == ("", 1, 60)
    assert f"{result.mean:.2f}" in (tmp_path / "RESULTS-quick.md").read_text()
    again = run_script(*words, NFDIST_DATA=str(tmp_path))
    assert "1 done, 0 to run" in again.stderr
    assert results_folder(quick=True).name == "results-quick"
