"""A summary equals the definition at every temperature and scale, in values and gradients."""

import pytest
import torch
from torch import Tensor

from nfdist.attention.ops import cpu
from tests.attention.ops.triton_kernels.running import DEVICE, KERNELS, assert_defined, random

pytestmark = pytest.mark.accelerator


def noise_of(nodes: int, heads: int, draws: int, dtype: torch.dtype) -> Tensor | None:
    drawn = KERNELS.gumbel(5, torch.arange(nodes, device=DEVICE), heads * draws, dtype)
    return drawn.unflatten(1, (heads, draws)) if draws else None


@pytest.mark.parametrize(
    ("nodes", "heads", "features", "draws", "channels"),
    [(1, 1, 5, 1, 7), (17, 2, 30, 3, 7), (130, 1, 30, 3, 64), (33, 3, 5, 0, 64), (300, 1, 5, 1, 7), (20, 1, 70, 1, 80)],
)
def test_of_any_shape(nodes: int, heads: int, features: int, draws: int, channels: int) -> None:
    logs = random(nodes, heads, features, seed=1, dtype=torch.float64, scale=3)
    values = random(nodes, channels, seed=2, dtype=torch.float64)
    assert_defined("summarize", [logs, values], noise_of(nodes, heads, draws, torch.float64), 0.25)


@pytest.mark.parametrize(
    ("dtype", "temperature"),
    [(torch.float32, 0.1), (torch.float32, 1.0), (torch.float32, 4.0), (torch.bfloat16, 0.25)],
)
def test_of_narrow_inputs_is_summed_in_float32(dtype: torch.dtype, temperature: float) -> None:
    logs, values = random(40, 2, 5, seed=1, dtype=dtype), random(40, 7, seed=2, dtype=dtype)
    noise = noise_of(40, 2, 3, torch.float32)
    log_mass, mean, noise_free = KERNELS.summarize(logs, values, noise, temperature)
    assert log_mass.dtype == mean.dtype == noise_free.dtype == torch.float32
    assert_defined("summarize", [logs, values], noise, temperature)


@pytest.mark.parametrize("temperature", [0.1, 0.25])
def test_of_draws_far_apart_needs_no_other_way(temperature: float) -> None:
    logs, values = random(40, 1, 5, seed=1, dtype=torch.float64, scale=900), random(40, 7, seed=2, dtype=torch.float64)
    assert_defined("summarize", [logs, values], noise_of(40, 1, 3, torch.float64), temperature)


def test_of_huge_inputs_is_finite_and_in_the_range_of_the_values() -> None:
    logs, values = random(40, 1, 5, seed=1, dtype=torch.float32, scale=1e6), random(40, 7, seed=2, dtype=torch.float32)
    log_mass, mean, noise_free = KERNELS.summarize(logs, values, noise_of(40, 1, 3, torch.float32), 0.1)
    outputs = (log_mass, mean, noise_free)
    found = torch.autograd.grad([output.sum() for output in outputs], [logs, values])
    assert all(torch.isfinite(tensor).all() for tensor in (*outputs, *found))
    assert (mean.amin((0, 1, 2)) >= values.amin(0) - 1e-5).all()
    assert (mean.amax((0, 1, 2)) <= values.amax(0) + 1e-5).all()


@pytest.mark.parametrize("draws", [0, 2])
def test_of_no_keys_is_the_empty_summary(draws: int) -> None:
    logs, values = random(0, 2, 5, seed=1, dtype=torch.float32), random(0, 7, seed=2, dtype=torch.float32)
    found = KERNELS.summarize(logs, values, noise_of(0, 2, draws, torch.float32), 0.25)
    noise = torch.empty(0, 2, draws) if draws else None
    wanted = cpu.summarize(logs.cpu(), values.cpu(), noise, 0.25)
    assert all(torch.equal(one.cpu(), other) for one, other in zip(found, wanted, strict=True))
    assert [grad.shape for grad in torch.autograd.grad([one.sum() for one in found], [logs, values])] == [
        (0, 2, 5),
        (0, 7),
    ]
