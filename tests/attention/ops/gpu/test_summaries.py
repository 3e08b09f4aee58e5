"""Summaries on a device equal their definition at every scale and temperature, in outputs and gradients."""

import pytest
import torch
from torch import Tensor

from nfdist.attention.ops import cpu, definition, gpu
from tests.comparing import assert_same, difference


def drawn(
    nodes: int, heads: int, draws: int, scale: float, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Log features, values and noise."""
    generator = torch.Generator().manual_seed(nodes)
    logs = torch.randn(nodes, heads, 12, generator=generator, dtype=torch.float64) * scale
    values = torch.randn(nodes, 5, generator=generator, dtype=torch.float64)
    noise = cpu.gumbel(3, torch.arange(nodes), heads * draws, dtype).unflatten(1, (heads, draws)) if draws else None
    return logs.to(dtype).requires_grad_(), values.to(dtype).requires_grad_(), noise


@pytest.mark.parametrize(
    ("dtype", "scale", "tolerance"),
    [(torch.float64, 1, 1e-12), (torch.float64, 30, 1e-11), (torch.float64, 1e3, 1e-10), (torch.float32, 1, 1e-5)],
)
@pytest.mark.parametrize("temperature", [0.1, 0.25, 4.0])
@pytest.mark.parametrize(("nodes", "heads", "draws"), [(1, 1, 1), (200, 1, 5), (200, 3, 2), (200, 2, 0)])
@pytest.mark.parametrize("chunk_rows", [None, 64])
def test_equal_to_the_definition(
    nodes: int,
    heads: int,
    draws: int,
    temperature: float,
    scale: float,
    dtype: torch.dtype,
    tolerance: float,
    chunk_rows: int | None,
) -> None:
    logs, values, noise = drawn(nodes, heads, draws, scale, dtype)
    ours = gpu.summarize(logs, values, noise, temperature, chunk_rows=chunk_rows)
    theirs = definition.summarize(logs, values, noise, temperature)
    for one, other, by in zip(ours, theirs, ([logs], [logs, values], [logs]), strict=True):
        assert_same(one, other, by, tolerance)
    one, other = (torch.cat([part.flatten() for part in parts]) for parts in (ours, theirs))
    assert_same(one, other, [logs, values], tolerance * max(1.0, 1 / temperature))


@pytest.mark.parametrize("draws", [0, 3])
def test_no_keys(draws: int) -> None:
    logs, values, noise = drawn(0, 2, draws, 1.0)
    for one, other in zip(
        gpu.summarize(logs, values, noise, 0.25), definition.summarize(logs, values, noise, 0.25), strict=True
    ):
        assert torch.equal(one, other)
    log_mass, mean, noise_free = gpu.summarize(logs, values, noise, 0.25)
    grads = torch.autograd.grad(log_mass.sum() + mean.sum() + noise_free.sum(), [logs, values])
    assert [grad.shape for grad in grads] == [logs.shape, values.shape]


def test_keys_in_another_order_of_memory_stay_as_they_are() -> None:
    logs, values, _ = drawn(70, 2, 0, 1.0)
    for strange in (logs.detach().permute(1, 2, 0).contiguous().movedim(-1, 0), logs.detach().clone()):
        for one, other in zip(
            gpu.summarize(strange, values, None, 0.25), definition.summarize(logs, values, None, 0.25), strict=True
        ):
            assert difference(one, other) < 1e-12
        assert torch.equal(strange, logs)
