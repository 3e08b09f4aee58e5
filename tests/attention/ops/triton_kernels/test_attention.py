"""Attending equals the definition at any scale; and keys, values and queries together the dense attention."""

import pytest
import torch

from nfdist.attention import ops
from nfdist.attention.attend import attend
from nfdist.attention.dense import dense_attend
from tests.attention.drawing import draw
from tests.attention.ops.triton_kernels.running import DEVICE, KERNELS, assert_defined, random
from tests.comparing import assert_same

pytestmark = pytest.mark.accelerator


def inputs_of(
    nodes: int, heads: int, features: int, draws: int, channels: int, dtype: torch.dtype, scale: float = 1.0
) -> list[torch.Tensor]:
    shapes = ((nodes, heads, features), (heads, draws, features), (heads, draws, features, channels), (heads, features))
    scales = (scale, 4 * scale, 1, scale)
    numbers = enumerate(zip(shapes, scales, strict=True))
    return [random(*shape, seed=index, dtype=dtype, scale=by) for index, (shape, by) in numbers]


@pytest.mark.parametrize(
    ("nodes", "heads", "features", "draws", "channels"),
    [(0, 2, 5, 3, 7), (1, 1, 5, 1, 7), (17, 2, 30, 3, 7), (130, 1, 30, 3, 64), (300, 1, 5, 1, 7), (20, 1, 70, 1, 80)],
)
def test_of_any_shape(nodes: int, heads: int, features: int, draws: int, channels: int) -> None:
    assert_defined("attend", inputs_of(nodes, heads, features, draws, channels, torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_of_narrow_inputs_is_summed_in_float32(dtype: torch.dtype) -> None:
    assert_defined("attend", inputs_of(40, 2, 5, 3, 7, dtype))


def test_of_draws_far_apart_needs_no_other_way() -> None:
    assert_defined("attend", inputs_of(40, 1, 5, 3, 7, torch.float64, scale=900))


def test_of_huge_inputs_is_finite() -> None:
    inputs = inputs_of(40, 1, 5, 3, 7, torch.float32, scale=1e6)
    outputs = KERNELS.attend(*inputs)
    found = torch.autograd.grad([output.sum() for output in outputs], inputs)
    assert all(torch.isfinite(tensor).all() for tensor in (*outputs, *found))


def test_of_an_empty_summary_is_zero() -> None:
    features = random(3, 1, 5, seed=1, dtype=torch.float32)
    lowest = torch.full((1, 2, 5), torch.finfo(torch.float32).min, device=DEVICE)
    outputs, log_normalizers = KERNELS.attend(features, lowest, lowest.new_zeros(1, 2, 5, 7), lowest[:, 0])
    assert (outputs == 0).all()
    assert torch.isfinite(log_normalizers).all()


@pytest.mark.skipif(DEVICE.type != "cpu", reason="the table of devices is changed for the interpreter")
@pytest.mark.parametrize(
    ("scale", "draws", "temperature", "epsilon", "dtype"),
    [
        (1, 3, 0.1, 0, torch.float32),
        (1, 0, 4.0, 1e-2, torch.float64),
        (30, 3, 0.25, 0, torch.float64),
        (1e3, 3, 0.25, 0, torch.float32),
    ],
)
def test_equal_to_the_dense_definition(
    scale: float, draws: int, temperature: float, epsilon: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = draw(20, 1, 7, 5, draws, temperature, scale, epsilon, dtype)
    arguments = (problem.queries, problem.keys, problem.values, problem.kernel, problem.noise)
    monkeypatch.setitem(ops.IMPLEMENTATIONS, "cpu", KERNELS)
    outputs = attend(*arguments)
    assert torch.isfinite(outputs).all()
    if scale == 1e3:
        assert outputs.detach().abs().max() <= problem.values.detach().abs().max() + 1e-5
    else:
        assert_same(outputs, dense_attend(*arguments), problem.inputs, 1e-10 if dtype == torch.float64 else 1e-4)
