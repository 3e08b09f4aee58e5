"""What depends on the device a tensor is on, besides operations (attention/ops, sparse) and how the world is joined."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import deepcopy
from typing import TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module")


def is_gpu(device: torch.device) -> bool:
    """Whether work goes on beside the processor's own."""
    return device.type != "cpu"


def mixed_precision(device: torch.device, enabled: bool) -> AbstractContextManager[None]:
    """Products in bf16 where torch knows how."""
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


def full_precision(device: torch.device) -> AbstractContextManager[None]:
    """No autocast for a while."""
    return torch.autocast(device.type, enabled=False)


def on_cpu(model: Module) -> Module:
    """The module itself if it is on the CPU, or a copy that is."""
    assert isinstance(model, nn.Module)
    return deepcopy(model).cpu() if is_gpu(next(model.parameters()).device) else model


def allocated_bytes(device: torch.device) -> Callable[[], float] | None:
    """A reading of the memory that torch holds on a GPU; None on the CPU."""
    return (lambda: float(torch.cuda.memory_allocated(device))) if device.type == "cuda" else None


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A small tensor on a device, without waiting for what the device has still to do."""
    pinned = tensor.pin_memory() if device.type == "cuda" else tensor
    return pinned.to(device, non_blocking=True)
