"""The epilogue on a device equals its definition, in outputs and gradients."""

from itertools import product

import pytest
import torch
from torch import Tensor

from nfdist.attention.ops import definition, gpu
from tests.comparing import assert_same


def drawn(nodes: int, terms: int, scale: float, dtype: torch.dtype) -> tuple[list[Tensor], Tensor, Tensor]:
    """Terms, and scale and shift of the norm."""
    generator = torch.Generator().manual_seed(nodes)
    shapes = [*[(nodes, 10)] * terms, (10,), (10,)]
    *rows, weight, bias = (
        (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype).requires_grad_()
        for shape in shapes
    )
    return rows, weight, bias


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-4)])
@pytest.mark.parametrize("scale", [1, 1e3])
@pytest.mark.parametrize(("nodes", "terms"), [(1, 1), (70, 1), (70, 2), (70, 4)])
def test_equal_to_the_definition(nodes: int, terms: int, scale: float, dtype: torch.dtype, tolerance: float) -> None:
    rows, weight, bias = drawn(nodes, terms, scale, dtype)
    before = [row.detach().clone() for row in rows]
    for norm, elu, drop in product((False, True), (False, True), (0.0, 0.5)):
        dropout = (5, torch.arange(nodes) * 7, drop) if drop else None
        affine = (weight, bias) if norm else (None, None)
        ours, theirs = (
            device.add_norm(*rows, scale=affine[0], shift=affine[1], elu=elu, dropout=dropout)
            for device in (gpu, definition)
        )
        assert_same(ours, theirs, [*rows, weight, bias] if norm else rows, tolerance)
    assert all(torch.equal(row, old) for row, old in zip(rows, before, strict=True))


def test_no_rows() -> None:
    rows, weight, bias = drawn(0, 2, 1.0, torch.float64)
    made = gpu.add_norm(*rows, scale=weight, shift=bias, elu=True, dropout=(1, torch.arange(0), 0.5))
    assert made.shape == (0, 10)
    assert all((grad == 0).all() for grad in torch.autograd.grad(made.sum(), [*rows, weight, bias]))
