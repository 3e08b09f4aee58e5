"""The optimizer, and its learning rate as a pure function of where training stands."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from nfdist.config import TrainConfig
from nfdist.errors import CheckpointError
from nfdist.model.protocol import Model


def learning_rate(config: TrainConfig, step: int, progress: float) -> float:
    """The rate of a step (from 0); `progress` counts epochs, for schedules that end with the last one."""
    rate = config.learning_rate
    if config.schedule == "milestones":
        rate *= config.gamma ** sum(step >= milestone for milestone in config.milestones)
    elif config.schedule == "cosine":
        rate *= 0.5 * (1 + math.cos(math.pi * min(progress / config.epochs, 1.0)))
    return rate * min(1.0, (step + 1) / (config.warmup_steps + 1))


def make_optimizer(model: Model, config: TrainConfig) -> torch.optim.Optimizer:
    rate, decay = config.learning_rate, config.weight_decay
    named = list(model.named_parameters())
    groups = [{"params": [parameter for name, parameter in named if name not in model.undecayed]}]
    if model.undecayed:
        free = [parameter for name, parameter in named if name in model.undecayed]
        groups.append({"params": free, "weight_decay": 0.0})  # type: ignore[dict-item]
    return torch.optim.Adam(groups, lr=rate, weight_decay=decay, fused=True)


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: Model) -> dict[str, Tensor]:
    """The optimizer's state by the names of parameters, such as `output.weight/exp_avg`."""
    return {
        f"{name}/{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, model: Model, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave."""
    parameters = dict(model.named_parameters())
    for full_name, value in tensors.items():
        name, _, key = full_name.rpartition("/")
        if name not in parameters:
            raise CheckpointError(f"the optimizer's state names {name}, which the model does not have")
        optimizer.state[parameters[name]][key] = value.to(parameters[name].device, copy=True)
