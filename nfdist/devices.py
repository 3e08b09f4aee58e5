"""What depends on the device a tensor is on, besides operations (attention/ops, sparse) and how the world is joined."""

import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module")
_DRIVER = Path("/proc/driver/nvidia/version")


def is_gpu(device: torch.device) -> bool:
    """Whether work goes on beside the processor's own."""
    return device.type != "cpu"


def mixed_precision(device: torch.device, enabled: bool) -> AbstractContextManager[None]:
    """Products in bf16 where torch knows how."""
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


def is_mixed_precision(device: torch.device) -> bool:
    """Whether products are in bf16 where torch knows how."""
    return torch.is_autocast_enabled(device.type)


def full_precision(device: torch.device) -> AbstractContextManager[None]:
    """No autocast for a while."""
    return torch.autocast(device.type, enabled=False)


_asked: list[str] = []  # of torch, the last one is in force; without any, torch's setting is a user's own


@contextmanager
def matrix_products(device: torch.device, *, bf16: bool, tf32: bool) -> Iterator[None]:
    """Products of float32 matrices by rounded factors for a while: docs/numerics.md#rounded-products.

    With `bf16` a CPU that can rounds them to bf16, and a GPU to TF32, as with `tf32`; other CPUs do not.
    """
    wanted = "medium" if bf16 else "high" if tf32 and is_gpu(device) else None
    with _asking(wanted) if wanted else nullcontext():
        yield


@contextmanager
def exact_products() -> Iterator[None]:
    """Products by factors as they are, whatever `matrix_products` has asked for."""
    with _asking("highest") if _asked else nullcontext():
        yield


@contextmanager
def _asking(precision: str) -> Iterator[None]:
    before = _asked[-1] if _asked else torch.get_float32_matmul_precision()
    _asked.append(precision)
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        _asked.pop()
        torch.set_float32_matmul_precision(_asked[-1] if _asked else before)


def placed(model: Module, device: torch.device) -> Module:
    """The module itself if it is on the device, or a copy that is."""
    assert isinstance(model, nn.Module)
    return model if next(model.parameters()).device == device else deepcopy(model).to(device)


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


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on a device, without waiting for what the device has still to do."""
    pinned = tensor.pin_memory() if device.type == "cuda" and tensor.layout == torch.strided else tensor
    return pinned.to(device, non_blocking=True)


@dataclass(frozen=True)
class MemoryUse:
    """Bytes that tensors have on a device now, had at most so far, and could have."""

    now: int
    peak: int
    limit: int

    @property
    def free(self) -> int:
        """Left for other tensors, with what torch holds and does not use."""
        return self.limit - self.now


def memory_use(device: torch.device) -> MemoryUse | None:
    """The memory of a device of its own; None on the CPU. It asks the driver, which is too slow for every step."""
    peak = peak_bytes(device)
    if peak is None:
        return None
    counters: Any = torch.get_device_module(device)
    free, _ = counters.mem_get_info(device)
    return MemoryUse(counters.memory_allocated(device), peak, free + counters.memory_reserved(device))


def peak_bytes(device: torch.device) -> int | None:
    """The most that tensors had on a device of its own so far; None on the CPU."""
    if not is_gpu(device):
        return None
    counters: Any = torch.get_device_module(device)
    return int(counters.max_memory_allocated(device))


def reached(device: torch.device) -> Callable[[], bool]:
    """A question that tells, without waiting, whether a device has done all that this thread has asked of it so far."""
    if device.type != "cuda":
        return lambda: True
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event.query


def gpu_stopwatch(device: torch.device) -> Callable[[], Callable[[], float]]:
    """Begins to time what a GPU does; the first call ends that, and what it returns tells the seconds once it is done.

    None of its work is waited for before the seconds are asked for.
    """
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record(torch.cuda.current_stream(device))

    def stop() -> Callable[[], float]:
        end.record(torch.cuda.current_stream(device))
        return read

    def read() -> float:
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000

    return stop


def describe(device: torch.device) -> dict[str, str]:
    """What of a GPU must be the same for a run to be repeated; nothing for the CPU."""
    if device.type != "cuda":
        return {}
    facts = {"gpu": torch.cuda.get_device_name(device), "cuda": str(torch.version.cuda)}
    found = re.search(r"\d+\.\d+(\.\d+)?", _DRIVER.read_text()) if _DRIVER.exists() else None
    return {**facts, "driver": found[0] if found else "unknown"}


def readable_by(device: torch.device, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory of the host, not written yet, that a device can copy from by itself."""
    return torch.empty(shape, dtype=dtype, pin_memory=device.type == "cuda")


@dataclass(frozen=True)
class Arrival:
    """The moment in which copies to a device are complete; without an event that is now."""

    event: torch.cuda.Event | None = None
    copies: list[Tensor] = field(default_factory=list)

    def precede(self) -> None:
        """Let whatever this thread asks of the device from now on come after the copies."""
        if self.event is None:
            return
        stream = torch.cuda.current_stream(self.copies[0].device)
        stream.wait_event(self.event)
        for tensor in self.copies:  # made in another stream: their memory is not to be given away before this one's end
            tensor.record_stream(stream)

    def complete(self) -> None:
        """Wait until the copies are complete."""
        if self.event is not None:
            self.event.synchronize()


class Copies:
    """Copies to a device that go on beside its work, in a stream of their own; on the CPU nothing is copied."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._made: list[Tensor] = []

    def enter_thread(self) -> None:
        """Make the device that of this thread: by default it would take the first one's memory."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)

    def move(self, tensor: Tensor) -> Tensor:
        """The tensor on the device, for what comes after an `arrival`."""
        if not is_gpu(self.device):
            return tensor
        if self._stream is None:
            return sent(tensor, self.device)
        with torch.cuda.stream(self._stream):
            copy = sent(tensor, self.device)
        dense = tensor.layout == torch.strided
        self._made += [copy] if dense else [copy.crow_indices(), copy.col_indices(), copy.values()]
        return copy

    def make(self, work: Callable[[], Tensor]) -> Tensor:
        """What is made on the device of copies, after these."""
        if self._stream is None:
            return work()
        with torch.cuda.stream(self._stream):
            made = work()
        self._made.append(made)
        return made

    def arrival(self) -> Arrival:
        """Of all copies since the last one."""
        made, self._made = self._made, []
        return Arrival(self._stream.record_event(), made) if self._stream is not None and made else Arrival()
