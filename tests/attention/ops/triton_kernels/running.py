"""Runs the kernels beside the definition: on a GPU where NFDIST_TEST_DEVICE=cuda, else interpreted on the CPU.

Importing this skips the tests of a module where triton is not installed.
"""

import os
from collections.abc import Sequence
from types import ModuleType

import pytest
import torch
from torch import Tensor

from nfdist import seeds
from nfdist.attention.ops import definition
from tests.comparing import assert_same, difference

pytest.importorskip("triton", reason="triton is not installed: pip install nfdist[gpu]")

import triton

from nfdist.attention.ops import triton_kernels

KERNELS: ModuleType = triton_kernels
DEVICE = torch.device("cuda" if os.environ.get("NFDIST_TEST_DEVICE") == "cuda" else "cpu")
if DEVICE.type == "cpu" and tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7):
    pytest.skip(f"the interpreter of triton {triton.__version__} fails with numpy 2.4", allow_module_level=True)
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 1e-2}


def random(*shape: int, seed: int, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    """Normal numbers on the device, that gradients are wanted of."""
    drawn = torch.randn(shape, generator=seeds.generator(seed, "kernels"), dtype=torch.float64) * scale
    return drawn.to(DEVICE, dtype).requires_grad_()


def assert_defined(name: str, inputs: Sequence[Tensor], *others: object, tolerance: float | None = None) -> None:
    """The kernels' operation equals the definition in float64, in outputs and in gradients of the inputs."""
    tolerance = TOLERANCES[inputs[0].dtype] if tolerance is None else tolerance
    found = _tuple(getattr(KERNELS, name)(*inputs, *others))
    wide = [other.double() if isinstance(other, Tensor) and other.is_floating_point() else other for other in others]
    wanted = _tuple(getattr(definition, name)(*(tensor.double() for tensor in inputs), *wide))
    for one, other in zip(found, wanted, strict=True):
        assert difference(one.double(), other) < tolerance
    if inputs[0].numel() == 0:
        grads = torch.autograd.grad([output.sum() for output in found], inputs)
        assert all((grad == 0).all() for grad in grads)
        return
    assert_same(_joined(found), _joined(wanted), inputs, tolerance)


def _joined(outputs: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([output.double().flatten() for output in outputs]).cpu()


def _tuple(outputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (outputs,) if isinstance(outputs, Tensor) else outputs
