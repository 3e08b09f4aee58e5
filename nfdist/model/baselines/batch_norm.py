"""BatchNorm over the batches of all ranks: a world of any size normalizes a step's rows as one process with all would.

training     (rows - mean) / sqrt(variance + ε) of each channel, over the rows of all ranks
evaluation   the same by running averages of both, which training leaves among the weights
"""

import torch
from torch import Tensor, nn

from nfdist.collectives import differentiable_total
from nfdist.world import World

EPSILON, MOMENTUM = 1e-5, 0.1  # as torch's BatchNorm has them


class BatchNorm(nn.Module):
    """With a scale and a shift for each channel; every rank must call it, even with no rows."""

    running_mean: Tensor
    running_variance: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_variance", torch.ones(width))

    def forward(self, rows: Tensor, world: World) -> Tensor:
        rows = rows.to(self.weight.dtype)
        mean, variance = self._of_batches(rows, world) if self.training else (self.running_mean, self.running_variance)
        return (rows - mean) * (variance + EPSILON).rsqrt() * self.weight + self.bias

    def _of_batches(self, rows: Tensor, world: World) -> tuple[Tensor, Tensor]:
        """The mean and the variance of all ranks' rows, which the running averages take in."""
        count = rows.new_full((1,), len(rows))
        sums = differentiable_total(world, torch.cat([rows.sum(0), count]), "sum rows")
        total = sums[-1].detach().clamp(min=1)  # where no rank has rows nothing is normalized
        mean = sums[:-1] / total
        # Around the mean, and so of no large numbers' difference.
        variance = differentiable_total(world, (rows - mean).square().sum(0), "sum squares") / total
        if sums[-1].detach() > 0:
            with torch.no_grad():
                self.running_mean.lerp_(mean, MOMENTUM)
                self.running_variance.lerp_(variance * total / (total - 1).clamp(min=1), MOMENTUM)
        return mean, variance
