"""Whole training jobs on an accelerator come to what they come to on the CPU, and go on from a checkpoint as there."""

import os
from pathlib import Path

import pytest
import torch

from nfdist.config import Config
from nfdist.errors import ConfigError
from nfdist.rendezvous import Place
from nfdist.training.job import train
from nfdist.world import World
from tests.accelerator.device import accelerator, assert_close
from tests.needs import needs_dgl
from tests.training.building import build_partition, config_of, cut_short, flat_weights, step_losses

pytestmark = pytest.mark.accelerator
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graphs") / "partition")


def trained(config: Config, device: torch.device, resume: bool = False) -> Path:
    """The run of a training as the one rank of a world."""
    result, stopped = train(config, Place(), World(), device, resume)
    assert result is not None
    assert stopped is None
    return Path(config.run.dir)


def test_trainings_equal_those_of_the_cpu_and_go_on_from_a_checkpoint(
    partition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the device, with five threads that make its batches, or the CPU, wherever they were begun."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(6))

    def config(run: str) -> Config:
        return config_of(partition, tmp_path / run, "train.batch_nodes=100", "train.checkpoint_every=2", "train.keep=9")

    whole = trained(config("cpu"), CPU)
    begun = trained(config("begun"), accelerator())
    cut_short(begun, tmp_path / "cut", 2)
    cut_short(begun, tmp_path / "moved", 2)
    resumed = trained(config("cut"), accelerator(), resume=True)
    moved = trained(config("moved"), CPU, resume=True)
    for run in (begun, resumed, moved):
        assert_close(flat_weights(run), flat_weights(whole))
        assert_close(torch.tensor(step_losses(run)), torch.tensor(step_losses(whole)))
    assert torch.equal(flat_weights(resumed), flat_weights(begun))


@needs_dgl
def test_a_model_without_code_for_devices_takes_the_cpu_and_says_so(
    partition: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["model.name=gat", "relation.order=1", "relation.scope=rank", "train.edge_loss=0", "train.epochs=1"]
    runs = [trained(config_of(partition, tmp_path / name, *options), accelerator()) for name in ("one", "other")]
    assert torch.equal(*map(flat_weights, runs))
    assert "model.name = gat has no code for GPUs: it is trained on the CPU" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"set run\.device=cpu \(is cuda\)"):
        trained(config_of(partition, tmp_path / "refused", *options, "run.device=cuda"), accelerator())
