"""Random queries, keys, values, noise and kernels for the attention's tests."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nfdist import seeds
from nfdist.attention import ops
from nfdist.attention.kernel import Kernel


@dataclass
class Problem:
    queries: Tensor
    keys: Tensor
    values: Tensor
    noise: Tensor | None
    kernel: Kernel

    @property
    def inputs(self) -> list[Tensor]:
        return [self.queries, self.keys, self.values]


def draw(
    nodes: int = 61,
    heads: int = 1,
    channels: int = 8,
    features: int = 12,
    draws: int = 0,
    temperature: float = 0.25,
    scale: float = 1.0,
    epsilon: float = 0.0,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Problem:
    """Queries and keys of the given scale; no draws means no noise."""
    generator = seeds.generator(seed, "problem")
    shape = (nodes, heads, channels)
    queries, keys, values = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3))
    queries, keys, values = (
        (rows * by).to(dtype).requires_grad_() for rows, by in ((queries, scale), (keys, scale), (values, 1.0))
    )
    noise = ops.gumbel(seed + 1, torch.arange(nodes), heads * draws, dtype).view(nodes, heads, draws)
    kernel = Kernel.draw(
        features, channels, temperature, seeds.generator(seed, "directions"), epsilon=epsilon, dtype=dtype
    )
    return Problem(queries, keys, values, noise if draws else None, kernel)
