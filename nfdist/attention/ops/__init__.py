"""The operations of attention: one signature each, its meaning in `definition.py`, and one implementation a device.

This is the one place that chooses. CUDA takes the Triton kernels where they can be compiled; without them it takes what
any device can run, as every other device but the CPU does.
"""

import os
import shutil
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from types import ModuleType
from typing import ParamSpec, TypeVar

from torch import Tensor

from nfdist.attention.ops import cpu, definition, gpu

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

IMPLEMENTATIONS: dict[str, ModuleType] = {"cpu": cpu}


def missing_for_kernels() -> str | None:
    """What the Triton kernels lack here besides a GPU; None where they serve CUDA."""
    if find_spec("triton") is None:
        return "the package triton"
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return "a C compiler for triton: gcc, clang or what CC names"
    return None


def _implementation(device: str) -> ModuleType:
    """The operations of a type of device; kernels are imported with the first tensor there, since it takes a second."""
    if device == "cuda" and device not in IMPLEMENTATIONS:
        if missing_for_kernels() is None:
            from nfdist.attention.ops import triton_kernels

            IMPLEMENTATIONS[device] = triton_kernels
        else:
            IMPLEMENTATIONS[device] = gpu
    return IMPLEMENTATIONS.get(device, gpu)


def _by_device(defined: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The operation as the device of its first tensor has it."""

    @wraps(defined)
    def operation(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        device = next(argument.device.type for argument in arguments if isinstance(argument, Tensor))
        implementation: Callable[Arguments, Result] = getattr(_implementation(device), defined.__name__)
        return implementation(*arguments, **options)

    return operation


key_logs = _by_device(definition.key_logs)
project = _by_device(definition.project)
summarize = _by_device(definition.summarize)
attend = _by_device(definition.attend)
edge_log_likelihood = _by_device(definition.edge_log_likelihood)
gumbel = _by_device(definition.gumbel)
keep_mask = _by_device(definition.keep_mask)
add_norm = _by_device(definition.add_norm)
