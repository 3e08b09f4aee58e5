"""Attention on an accelerator equals the dense definition on the CPU, in outputs and in gradients."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nfdist.attention import ops
from nfdist.attention.attend import attend
from nfdist.attention.dense import dense_attend
from nfdist.attention.kernel import Kernel
from nfdist.attention.summary import KeySummary, summarize
from tests.accelerator.device import accelerator

pytestmark = pytest.mark.accelerator

NODES, HEADS, CHANNELS, DRAWS = 150, 2, 6, 3
Attend = Callable[[Tensor, Tensor, Tensor, Kernel, Tensor | None], Tensor]


def rows(seed: int, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(NODES, HEADS, CHANNELS, generator=generator, dtype=torch.float64)


def with_gradients(attention: Attend, inputs: list[Tensor], kernel: Kernel, noise: Tensor | None) -> list[Tensor]:
    """The output, and the gradients of queries, keys and values."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    out = attention(leaves[0], leaves[1], leaves[2], kernel, noise)
    out.backward(torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out).to(out.device))
    gradients = [leaf.grad for leaf in leaves]
    return [out.detach().cpu(), *(gradient.cpu() for gradient in gradients if gradient is not None)]


@pytest.mark.parametrize(("scale", "temperature"), [(1.0, 1.0), (1.0, 0.25), (1.0, 0.02), (30.0, 0.25)])
@pytest.mark.parametrize("noisy", [True, False])
def test_it_equals_the_dense_definition(noisy: bool, scale: float, temperature: float) -> None:
    device, inputs = accelerator(), [rows(seed, scale) for seed in range(3)]
    directions = torch.randn(11, CHANNELS, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    streams = HEADS * DRAWS
    noise = ops.gumbel(5, torch.arange(NODES), streams, torch.float64).unflatten(1, (HEADS, DRAWS)) if noisy else None
    wanted = with_gradients(dense_attend, inputs, Kernel(directions, temperature), noise)
    there = [tensor.to(device) for tensor in inputs]
    kernel = Kernel(directions.to(device), temperature)
    found = with_gradients(attend, there, kernel, None if noise is None else noise.to(device))
    assert len(found) == len(wanted) == 4
    for one, other in zip(found, wanted, strict=True):
        assert float((one - other).abs().max()) <= 1e-10 * float(other.abs().max())


@pytest.mark.parametrize("cut", [0, 1, 70])
def test_a_summary_of_the_whole_is_the_merge_of_its_parts(cut: int) -> None:
    device = accelerator()
    keys, values = rows(1).to(device), rows(2)[:, 0].to(device)
    kernel = Kernel(rows(3)[:11, 0].to(device), 0.25)

    def summary(some: slice) -> KeySummary:
        return summarize(kernel.key_features(keys[some]), values[some], kernel, None)

    whole = summary(slice(None))
    merged = summary(slice(0, cut)).merge(summary(slice(cut, None)))
    for name in ("log_mass", "mean", "noise_free_log_mass"):
        assert torch.allclose(getattr(merged, name).cpu(), getattr(whole, name).cpu(), rtol=1e-10, atol=1e-12)


def test_noise_and_masks_are_those_of_the_cpu() -> None:
    ids = torch.tensor([0, 3, 17, 2**31, 2**40 + 5])
    there = ids.to(accelerator())
    assert torch.equal(ops.gumbel(7, there, 5, torch.float64).cpu(), ops.gumbel(7, ids, 5, torch.float64))
    found, wanted = ops.keep_mask(9, there, 10, 0.3), ops.keep_mask(9, ids, 10, 0.3)
    assert torch.equal(found[0].cpu(), wanted[0])
    assert found[1] == wanted[1]
