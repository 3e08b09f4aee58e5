"""A training that is tracked: its numbers are those of an untracked one, and the tracker has each of them once."""

import sys
from pathlib import Path

import pytest

from nfdist import settings
from nfdist.cli.main import main
from nfdist.runs.run import Run
from nfdist.world import World
from tests.observe.trackers.reading import event_scalars, scalars_of
from tests.training.building import build_partition, config_of, cut_short, run_training
from tests.training.launching import Moment, started, torchrun, training_of, write_config

OPTIONS = ("train.precision=float32", "train.evaluate_every=1", "train.epochs=2", "train.checkpoint_every=3")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graph") / "partition")


def trained(graph: Path, run: Path, *overrides: str, resume: bool = False) -> None:
    text = settings.dump(config_of(graph, run, *OPTIONS, "train.keep=100", *overrides))
    assert run_training(World(), text, resume) is not None


def without_result(run: Path) -> dict[str, object]:
    return {name: series for name, series in event_scalars(run, 0).items() if not name.startswith("result/")}


def test_a_tracked_run_that_goes_on_has_each_step_once_and_the_numbers_of_another(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    trained(graph, tmp_path / "plain")
    trained(graph, whole, 'observe.trackers=["tensorboard"]')
    assert training_of(whole) == training_of(tmp_path / "plain")
    assert without_result(whole) == scalars_of(Run.open(whole).metrics())

    cut_short(whole, cut, 6)  # with the events of a training that went on to its end
    (cut / "result.json").unlink()
    trained(graph, cut, 'observe.trackers=["tensorboard"]', resume=True)
    assert without_result(cut) == scalars_of(Run.open(cut).metrics())
    result = Run.open(cut).result()
    assert result is not None
    step, valid = event_scalars(cut, 0)["result/best/valid"][0]
    assert step == 10
    assert valid == pytest.approx(result["best"]["valid"], rel=1e-6)
    assert "warning: tensorboard" not in capsys.readouterr().err

    trained(graph, tmp_path / "plain", 'observe.trackers=["tensorboard"]', resume=True)  # it is over: all is sent
    assert without_result(tmp_path / "plain") == scalars_of(Run.open(tmp_path / "plain").metrics())


def test_a_tracker_that_fails_ends_no_training(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    trained(graph, run)
    (run / "tensorboard").write_text("a file where its folder should be")
    trained(graph, run, 'observe.trackers=["tensorboard"]', "train.epochs=3", resume=True)
    told = [line for line in capsys.readouterr().err.splitlines() if "tensorboard" in line]
    assert len(told) == 2
    assert "tensorboard was not updated, the training goes on" in told[0]
    assert "tensorboard lacks the last of" in told[1]
    result = Run.open(run).result()
    assert result is not None
    assert result["final"]["epoch"] == 3


def test_a_missing_package_is_refused_before_anything_is_made(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.delitem(sys.modules, "nfdist.observe.trackers.wandb_runs", raising=False)
    words = [f"run.dir={tmp_path / 'run'}", 'observe.trackers=["wandb"]', "observe.port=0"]
    assert main(["train", str(graph), *words]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "observe.trackers" in line]
    assert line.endswith('pip install "nfdist[wandb]"')
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_workers_that_are_killed_and_started_again_tell_each_step_once(graph: Path, tmp_path: Path) -> None:
    run, tracked = tmp_path / "run", 'observe.trackers=["tensorboard"]'
    config = write_config(tmp_path / "small.toml", graph, "train.epochs=40", "train.evaluate_every=4", tracked)
    command = torchrun("train", config, f"run.dir={run}", "observe.port=0", restarts=2)
    with started(command, tmp_path / "log") as job:
        for rank, step in ((0, 95), (1, 203)):
            Moment("step", rank, step=step).strike(job, run)
        assert job.wait() == 0
    lines = Run.open(run).metrics()
    assert [line["step"] for line in lines if line["kind"] == "step"] == list(range(1, 281))
    assert without_result(run) == scalars_of(lines)
    result = Run.open(run).result()
    assert result is not None
    assert result["restarts"] == 2
    assert len(list((run / "tensorboard" / "seed-0").iterdir())) == 3
