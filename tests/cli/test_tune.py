"""nfdist tune from the words of the command line to its exit code."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nfdist.cli.main import main
from nfdist.training.job import train
from nfdist.tune import search as module
from nfdist.tune.default_spaces import SPACES
from nfdist.tune.optuna_door import optuna
from tests.cli.runs import mistake, outcome
from tests.training.launching import torchrun
from tests.tune.building import build_graph, facts_of

SMALL = (
    "model.channels = 4\nmodel.heads = 1\nrelation.order = 1\ntrain.epochs = 2\nobserve.port = 0\n"
    '[search]\n"train.learning_rate" = [0.01, 0.1]\nmodel.dropout = { low = 0.0, high = 0.5 }\n'
)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tune")
    path = folder / "small.toml"
    path.write_text(f'data.partition = "{build_graph(folder)}"\n{SMALL}')
    return path


def test_a_study_and_its_best_settings(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("tune", config, "--trials", "2", "model.heads=2", "--out", tmp_path / "out")
    found = outcome(capsys, *words, "train.learning_rate=0.02")
    assert found["trials"] == {"complete": 2, "pruned": 0, "failed": 0}
    assert list(found["best"]["settings"]) == ["model.dropout"], "an override fixes what [search] would vary"
    again = outcome(capsys, *words, "train.learning_rate=0.02")
    assert found["core_seconds"] > again["core_seconds"] >= 0
    timeless = {"seconds": 0, "core_seconds": 0}
    assert {**again, **timeless} == {**found, **timeless}
    trained = outcome(capsys, "train", tmp_path / "out" / "best.toml")
    assert trained["per_seed"][0]["smoothed"]["valid"] == found["best"]["valid"]
    assert (tmp_path / "out" / "best" / "result.json").exists()
    assert "holds a study with model.heads = 2, not 1" in mistake(
        capsys, *words, "train.learning_rate=0.02", "model.heads=1"
    )


def test_a_partition_needs_no_file(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ("train.epochs=1", "observe.port=0", "--out", tmp_path / "out", "--trials", "1")
    found = outcome(capsys, "tune", config.parent / "graph", "model.name=gcn", *small)
    assert set(found["best"]["settings"]) == set(SPACES["gcn"])


def test_a_configuration_with_a_search_can_be_trained(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(capsys, "train", config, f"run.dir={tmp_path / 'run'}")["best"] is not None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trials", "0"], "--trials must be at least 1, got 0"),
        (["--hours", "nan"], "--hours must be above 0, got nan"),
        (["--workers", "0"], "--workers must be at least 1, got 0"),
        (["--workers", "1000000"], "one for each core of this host, got 1000000"),
        (["model.name=gcm"], "model.name must be one of"),
        (["data.partition=nowhere"], "nowhere"),
        (["train.evaluate_every=0"], "train.evaluate_every is 0"),
        (["--hours", "1e-9"], "no trial came to the end"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], said: str, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in mistake(capsys, "tune", config, "--out", tmp_path / "out", *words)


def test_without_optuna_nothing_is_written(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    optuna.cache_clear()
    try:
        assert 'pip install "nfdist[tune]"' in mistake(capsys, "tune", config, "--out", tmp_path / "out")
    finally:
        optuna.cache_clear()
    assert not (tmp_path / "out").exists()


def test_ctrl_c_leaves_a_study_that_goes_on(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> object:
        signal.raise_signal(signal.SIGINT)
        return train(*arguments)  # type: ignore[arg-type]

    words = ["tune", str(config), "--out", str(tmp_path / "out"), "--trials", "2"]
    monkeypatch.setattr(module, "train", interrupted)
    assert main(words) == 130
    monkeypatch.undo()
    found = outcome(capsys, *words)
    assert found["trials"]["complete"] == 2


@pytest.mark.slow
def test_all_ranks_of_torchrun_train_each_trial(config: Path, tmp_path: Path) -> None:
    scopes = ("attention.scope=world", "relation.scope=world")
    words = torchrun("tune", config, *scopes, "--trials", "3", "--out", tmp_path / "out")
    subprocess.run(words, check=True, timeout=200)
    found = facts_of(tmp_path / "out")
    assert len(found) == 3
    refused = subprocess.run([*words, "--workers", "2"], check=False, timeout=200, capture_output=True, text=True)
    assert refused.returncode
    assert refused.stderr.count("nfdist: --workers is for one host without torchrun") == 1
