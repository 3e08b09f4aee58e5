"""bf16 is refused on CPUs, where it gains nothing, but for runs that were begun with it."""

from pathlib import Path

import pytest

from nfdist import settings
from nfdist.errors import ConfigError
from nfdist.runs.run import Run
from nfdist.world import World
from tests.training.building import build_partition, config_of, run_training


def test_bf16_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    graph, options = build_partition(tmp_path / "graph"), ("train.precision=bf16", "train.epochs=1")
    text = settings.dump(config_of(graph, tmp_path / "run", *options))
    with pytest.raises(ConfigError, match=r"no faster on a CPU .* set train\.precision=float32, or train on a GPU"):
        run_training(World(), text)
    assert not (tmp_path / "run").exists()
    with monkeypatch.context() as earlier:
        earlier.setattr("nfdist.training.job.check_precision", lambda *_, **__: None)
        run_training(World(), text)
    longer = settings.dump(config_of(graph, tmp_path / "run", "train.precision=bf16", "train.epochs=2"))
    run_training(World(), longer, resume=True)
    assert 'warning: train.precision = "bf16" is no faster on a CPU' in capsys.readouterr().err
    assert {line["epoch"] for line in Run.open(tmp_path / "run").metrics() if line["kind"] == "step"} == {0, 1}
