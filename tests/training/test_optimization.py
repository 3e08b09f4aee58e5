"""Learning rates are functions of the position; the optimizer's state survives a round trip to the bit."""

import math

import pytest
import torch

from nfdist.config import ModelConfig, TrainConfig
from nfdist.errors import CheckpointError
from nfdist.model.baselines.mlp import MLP
from nfdist.training.optimization import learning_rate, make_optimizer, optimizer_tensors, restore_optimizer


def test_schedules() -> None:
    constant = TrainConfig(learning_rate=0.1)
    assert {learning_rate(constant, step, step / 10) for step in range(50)} == {0.1}
    halved = TrainConfig(learning_rate=0.1, schedule="milestones", milestones=(100, 200), gamma=0.5)
    assert [learning_rate(halved, step, 0) for step in (0, 99, 100, 199, 200, 999)] == [
        0.1,
        0.1,
        0.05,
        0.05,
        0.025,
        0.025,
    ]
    cosine = TrainConfig(learning_rate=0.1, schedule="cosine", epochs=10)
    assert learning_rate(cosine, 0, 0.0) == 0.1
    assert learning_rate(cosine, 0, 5.0) == pytest.approx(0.05)
    assert learning_rate(cosine, 0, 10.0) == pytest.approx(0.0)
    assert learning_rate(cosine, 0, 2.5) == pytest.approx(0.05 * (1 + math.sqrt(0.5)))


def test_warm_up_rises_to_the_schedule() -> None:
    config = TrainConfig(learning_rate=0.1, warmup_steps=4)
    assert [learning_rate(config, step, 0) for step in range(6)] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1])


def steps(model: MLP, optimizer: torch.optim.Optimizer, count: int) -> None:
    for step in range(count):
        optimizer.zero_grad()
        inputs = torch.randn(8, 3, generator=torch.Generator().manual_seed(step))
        model.input(inputs).square().sum().backward()
        optimizer.step()


def test_the_state_survives_to_the_bit() -> None:
    models = [MLP(3, 2, ModelConfig(layers=1)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [make_optimizer(model, TrainConfig(weight_decay=0.1)) for model in models]
    steps(models[0], optimizers[0], 3)
    models[1].load_state_dict(models[0].state_dict())
    kept = {name: tensor.clone() for name, tensor in optimizer_tensors(optimizers[0], models[0]).items()}
    assert set(kept) == {
        f"input.{name}/{key}" for name in ("weight", "bias") for key in ("step", "exp_avg", "exp_avg_sq")
    }
    restore_optimizer(optimizers[1], models[1], kept)
    for model, optimizer in zip(models, optimizers, strict=True):
        steps(model, optimizer, 4)
    assert torch.equal(models[0].input.weight, models[1].input.weight)
    with pytest.raises(CheckpointError, match=r"names other\.weight, which the model does not have"):
        restore_optimizer(optimizers[1], models[1], {"other.weight/step": torch.tensor(1.0)})
