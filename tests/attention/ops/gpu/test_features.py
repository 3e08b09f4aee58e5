"""Features on a device equal their definition, in outputs and gradients."""

import pytest
import torch
from torch import Tensor

from nfdist.attention.ops import definition, gpu
from tests.comparing import assert_same


def maps(nodes: int, heads: int, dtype: torch.dtype) -> tuple[list[Tensor], Tensor]:
    """Hidden states with weights and biases of queries and keys, and directions."""
    shapes = ((nodes, 16), (heads * 12, 16), (heads * 12,), (heads * 8, 16), (heads * 8,))
    inputs = [drawn(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]
    return inputs, drawn(12, 8, dtype=dtype, seed=9).detach()


def drawn(*shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    numbers = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (numbers * scale).to(dtype).requires_grad_()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("scale", [1, 30, 1e3])
@pytest.mark.parametrize(("nodes", "heads"), [(1, 1), (65, 1), (65, 3)])
def test_key_logs(nodes: int, heads: int, scale: float, dtype: torch.dtype, tolerance: float) -> None:
    keys, directions = drawn(nodes, heads, 8, scale=scale, dtype=dtype), drawn(12, 8, dtype=dtype, seed=1).detach()
    assert_same(gpu.key_logs(keys, directions, 0.3), definition.key_logs(keys, directions, 0.3), [keys], tolerance)
    strange = keys.detach().permute(1, 2, 0).contiguous().movedim(-1, 0).requires_grad_()  # as by_head has them
    assert_same(
        gpu.key_logs(strange, directions, 0.3), definition.key_logs(strange, directions, 0.3), [strange], tolerance
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("nodes", "heads"), [(1, 1), (65, 1), (65, 3)])
def test_project(nodes: int, heads: int, dtype: torch.dtype, tolerance: float) -> None:
    inputs, directions = maps(nodes, heads, dtype)
    ours, theirs = (device.project(*inputs, directions, 0.3) for device in (gpu, definition))
    for one, other, by in zip(ours, theirs, (inputs[:3], [inputs[0], *inputs[3:]]), strict=True):
        assert_same(one, other, by, tolerance)
    assert_same(torch.cat(ours, 2), torch.cat(theirs, 2), inputs, tolerance)


def test_no_rows() -> None:
    inputs, directions = maps(0, 2, torch.float64)
    ours = gpu.project(*inputs, directions, 0.3)
    assert [part.shape for part in ours] == [(0, 2, 12), (0, 2, 12)]
    assert all((grad == 0).all() for grad in torch.autograd.grad(torch.cat(ours).sum(), inputs))
