"""BatchNorm is torch's over all ranks' rows, in outputs, gradients and running averages, and is carried along."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nfdist import seeds, settings
from nfdist.config import Config, ModelConfig
from nfdist.errors import ConfigError
from nfdist.model.baselines.batch_norm import BatchNorm
from nfdist.model.build import check_settings
from nfdist.training.average import WeightAverage
from nfdist.world import World
from tests.comparing import difference
from tests.training.building import build_partition, config_of, flat_weights, resumed, step_losses
from tests.worlds import run_world

CUTS = {1: [0, 12], 2: [0, 5, 12], 3: [0, 5, 5, 12]}  # the second of three ranks has no rows


def drawn(name: str, *shape: int) -> Tensor:
    return torch.randn(shape, generator=seeds.generator(0, name), dtype=torch.float64)


def two_steps(world: World) -> list[NDArray[np.float64]]:
    """Outputs and gradients of this rank's rows in the second of two steps, gradients of weights, and the state."""
    start, stop = CUTS[world.size][world.rank : world.rank + 2]
    norm = made()
    for step in range(2):
        rows = (3 + 10 * drawn(f"rows {step}", 12, 4))[start:stop].requires_grad_()
        outputs = norm(rows, world)
        norm.zero_grad()
        (outputs * drawn("pulls", 12, 4)[start:stop]).sum().backward()
    return arrays(outputs, rows.grad, norm.weight.grad, norm.bias.grad, *norm.buffers())


def arrays(*tensors: Tensor | None) -> list[NDArray[np.float64]]:
    return [tensor.detach().numpy() for tensor in tensors if tensor is not None]


def made() -> BatchNorm:
    norm = BatchNorm(4).double()
    with torch.no_grad():
        norm.weight.copy_(drawn("weight", 4))
        norm.bias.copy_(drawn("bias", 4))
    return norm


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.slow), 3])
def test_it_is_torchs_over_the_rows_of_all_ranks(size: int) -> None:
    norm, mine = nn.BatchNorm1d(4).double(), made()
    norm.load_state_dict({**norm.state_dict(), "weight": mine.weight, "bias": mine.bias})
    for step in range(2):
        rows = (3 + 10 * drawn(f"rows {step}", 12, 4)).requires_grad_()
        outputs = norm(rows)
        norm.zero_grad()
        (outputs * drawn("pulls", 12, 4)).sum().backward()
    theirs = arrays(outputs, rows.grad, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var)
    found = [two_steps(World())] if size == 1 else run_world(size, two_steps)
    parts = list(zip(*found, strict=True))
    merged = [np.concatenate(parts[0]), np.concatenate(parts[1]), sum(parts[2]), sum(parts[3])]
    for own, other in zip(merged, theirs, strict=False):
        assert np.allclose(own, other, rtol=1e-12, atol=1e-13)
    for state, other in zip(parts[4:], theirs[4:], strict=True):
        assert all(np.allclose(own, other, rtol=1e-12) for own in state)


def test_evaluation_is_by_the_running_averages_and_moves_them_not() -> None:
    norm = made()
    norm.running_mean.copy_(drawn("mean", 4))
    norm.running_variance.copy_(drawn("variance", 4).square())
    norm.eval()
    before, rows = norm.state_dict(), drawn("rows", 3, 4)
    wanted = (rows - norm.running_mean) / (norm.running_variance + 1e-5).sqrt() * norm.weight + norm.bias
    assert difference(norm(rows, World()), wanted) < 1e-12
    assert difference(norm(rows[:1], World()), wanted[:1]) < 1e-12
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


def test_no_rows_at_all_move_nothing() -> None:
    norm = made()
    assert norm(torch.zeros(0, 4, dtype=torch.float64), World()).shape == (0, 4)
    assert not norm.running_mean.any()
    assert (norm.running_variance == 1).all()


def test_a_moving_average_of_the_weights_has_the_running_averages_of_the_model() -> None:
    norm = made()
    average = WeightAverage(norm, 0.9)  # type: ignore[arg-type]
    norm(drawn("rows", 5, 4), World())
    average.update(norm, 0)  # type: ignore[arg-type]
    assert all(torch.equal(*pair) for pair in zip(average.model.buffers(), norm.buffers(), strict=True))


def test_a_resumed_run_is_bit_equal(tmp_path: Path) -> None:
    graph = build_partition(tmp_path / "graph")
    words = ["model.name=gcn", "relation.order=1", "relation.scope=rank", "train.edge_loss=0", "model.norm=batch"]
    words += ["train.batch_nodes=60", "train.ema=0.5", "train.checkpoint_every=1", "train.keep=20"]
    runs = [tmp_path / "whole", tmp_path / "cut"]
    texts = [settings.dump(config_of(graph, run, *words)) for run in runs]
    resumed(World(), texts[0], texts[1], str(runs[0]), 3)
    assert step_losses(runs[1]) == step_losses(runs[0])
    assert torch.equal(flat_weights(runs[1]), flat_weights(runs[0]))


def test_nodeformer_has_none() -> None:
    with pytest.raises(ConfigError, match=r"model.name = nodeformer needs other settings: set model.norm=layer \(is b"):
        check_settings(Config(model=ModelConfig(norm="batch")))
