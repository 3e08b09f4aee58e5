"""Attend on a device equals its definition at every scale, in outputs and gradients."""

import pytest
import torch
from torch import Tensor

from nfdist.attention.ops import definition, gpu
from tests.comparing import assert_same, difference


def drawn(
    nodes: int, heads: int, draws: int, scale: float, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, log masses, means and masses without noise."""
    generator = torch.Generator().manual_seed(nodes)
    shapes = ((nodes, heads, 12), (heads, draws, 12), (heads, draws, 12, 5), (heads, 12))
    features, log_mass, mean, noise_free = (
        (torch.randn(shape, generator=generator, dtype=torch.float64) * by).to(dtype).requires_grad_()
        for shape, by in zip(shapes, (scale, scale, 1.0, scale), strict=True)
    )
    return features, log_mass, mean, noise_free


@pytest.mark.parametrize(
    ("dtype", "scale", "tolerance"),
    [(torch.float64, 1, 1e-12), (torch.float64, 30, 1e-12), (torch.float64, 1e3, 1e-12), (torch.float32, 1, 1e-5)],
)
@pytest.mark.parametrize(("nodes", "heads", "draws"), [(1, 1, 1), (200, 1, 5), (200, 3, 2)])
@pytest.mark.parametrize("chunk_rows", [None, 64])
def test_equal_to_the_definition(
    nodes: int, heads: int, draws: int, scale: float, dtype: torch.dtype, tolerance: float, chunk_rows: int | None
) -> None:
    inputs = drawn(nodes, heads, draws, scale, dtype)
    ours, theirs = gpu.attend(*inputs, chunk_rows=chunk_rows), definition.attend(*inputs)
    assert_same(ours[0], theirs[0], inputs[:3], tolerance)
    assert_same(ours[1], theirs[1], [inputs[0], inputs[3]], tolerance)
    one, other = (torch.cat([outputs, normalizers / scale], 1) for outputs, normalizers in (ours, theirs))
    assert_same(one, other, inputs, tolerance)


def test_draws_that_are_far_apart() -> None:
    features, log_mass, mean, noise_free = drawn(70, 2, 3, 1.0)
    with torch.no_grad():
        log_mass += torch.tensor([0.0, 1e4, -1e4], dtype=torch.float64)[:, None]
        log_mass[..., ::2] -= torch.tensor([0.0, 1e3, 0.0], dtype=torch.float64)[:, None]
    inputs = (features, log_mass, mean, noise_free)
    assert_same(gpu.attend(*inputs)[0], definition.attend(*inputs)[0], inputs[:3], 1e-12)


def test_no_queries() -> None:
    inputs = drawn(0, 2, 3, 1.0)
    outputs, normalizers = gpu.attend(*inputs)
    assert outputs.shape == (0, 5)
    assert normalizers.shape == (0, 2)
    assert all((grad == 0).all() for grad in torch.autograd.grad(outputs.sum() + normalizers.sum(), inputs))


def test_queries_in_another_order_of_memory() -> None:
    features, *others = drawn(70, 2, 3, 1.0)
    strange = features.detach().permute(1, 2, 0).contiguous().movedim(-1, 0)
    for one, other in zip(gpu.attend(strange, *others), definition.attend(features, *others), strict=True):
        assert difference(one, other) < 1e-12
