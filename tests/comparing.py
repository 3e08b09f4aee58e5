"""How the tests compare: relative to the largest entry, in outputs and gradients."""

from collections.abc import Sequence

import torch
from torch import Tensor


def difference(left: Tensor, right: Tensor, least: float = 1e-30) -> float:
    """The largest difference, relative to the largest entry of the right side (but to no less than `least`)."""
    assert left.shape == right.shape
    assert torch.isfinite(left).all()
    assert torch.isfinite(right).all()
    if right.numel() == 0:
        return 0.0
    return float(((left - right).abs().max() / right.abs().max().clamp(min=least)).detach())


def gradients(output: Tensor, inputs: Sequence[Tensor], seed: int = 5) -> list[Tensor]:
    """Gradients of a random projection of the output: all of its Jacobian shows."""
    cotangent = torch.randn(output.shape, generator=torch.Generator().manual_seed(seed), dtype=output.dtype)
    return list(torch.autograd.grad((output * cotangent).sum(), list(inputs), retain_graph=True))


def assert_same(left: Tensor, right: Tensor, inputs: Sequence[Tensor], tolerance: float) -> None:
    """Two functions of the same inputs agree, and so do their gradients.

    Where a weight is saturated, the gradient of one input is rounding noise beside that of another: it is compared to
    no less than a hundredth of the largest gradient of all.
    """
    assert difference(left, right) < tolerance
    mine, theirs = gradients(left, inputs), gradients(right, inputs)
    least = 1e-2 * max(float(gradient.abs().max()) for gradient in theirs)
    for index, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        assert difference(one, other, least) < tolerance, f"gradient of input {index}"
