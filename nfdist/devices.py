"""What depends on the device a tensor is on, besides operations (attention/ops, sparse) and how the world is joined."""

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import deepcopy
from typing import Any, TypeVar

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


def placed(model: Module, device: torch.device) -> Module:
    """The module itself if it is on the device, or a copy that is."""
    assert isinstance(model, nn.Module)
    return model if next(model.parameters()).device == device else deepcopy(model).to(device)


def free_bytes(device: torch.device) -> int | None:
    """What a GPU has left for tensors, with what torch holds there and does not use; None on the CPU."""
    if not is_gpu(device):
        return None
    memory: Any = torch.get_device_module(device)
    free, _ = memory.mem_get_info(device)
    return int(free + memory.memory_reserved(device) - memory.memory_allocated(device))


def pin(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor, which a GPU then copies without a detour for as long as it is there."""
    if device.type == "cuda" and tensor.nbytes:
        driver: Any = torch.cuda.cudart()
        torch.cuda.check_error(int(driver.cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0)))
        weakref.finalize(tensor, driver.cudaHostUnregister, tensor.data_ptr())
    return tensor


def allocated_bytes(device: torch.device) -> Callable[[], float] | None:
    """A reading of the memory that torch holds on a GPU; None on the CPU."""
    return (lambda: float(torch.cuda.memory_allocated(device))) if device.type == "cuda" else None
