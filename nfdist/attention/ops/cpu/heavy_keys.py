"""Summaries under noise, from the heavy keys alone: docs/numerics.md#heavy-keys

Gumbel noise at a low temperature spreads the weights of keys so far apart that in every draw all but a few lie below
the rounding of the rest: about exp(reach x temperature) keys are within exp(-reach) of the heaviest, be they a thousand
or a billion. Which ones do is found from bounds, without a look at every draw, key and feature together.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.ops.chunks import Scratch, chunks, peaks_of

LEADERS = 16  # keys of a draw that its shifts are taken from
MOST_HEAVY = 1 / 3  # of the keys of all draws: with more, products over all of them are as fast
HIGHEST = 60.0  # an exponent that is far from overflow, whatever is added up


def reach(temperature: float, dtype: torch.dtype) -> float:
    """How far below the heaviest weight, as a logarithm, a key counts.

    At a distance x there are about exp(x temperature) keys of weight exp(-x): those beyond the reach are together about
    exp(-reach (1 - temperature)) of the whole, which is below rounding.
    """
    digits = 16.0 if torch.finfo(dtype).bits <= 32 else 34.0
    return digits / (1 - temperature) if temperature < 1 else math.inf


def few_are_heavy(num_nodes: int, temperature: float, dtype: torch.dtype) -> bool:
    """Whether noise at this temperature leaves few of so many keys heavy, even if their features are not alike."""
    return num_nodes > 0 and reach(temperature, dtype) * temperature < math.log(num_nodes / 40)


@dataclass(frozen=True)
class HeavyKeys:
    """The heavy keys: head after head, draw after draw, each one's head, node and log weight [s].

    `counts` are how many there are in each head and draw; `shifts` [h, k, m] are within HIGHEST of the largest exponent
    of each draw and feature; `noise_free` [h, m] are the log masses without noise.
    """

    heads: Tensor
    nodes: Tensor
    log_weights: Tensor
    counts: Tensor
    shifts: Tensor
    noise_free: Tensor


@torch.no_grad()
def find_heavy_keys(logs: Tensor, noise: Tensor, temperature: float) -> HeavyKeys | None:
    """The heavy keys, by log features [h, m, n] and noise [h, k, n]; None where too many are."""
    (heads, num_features, num_nodes), draws = logs.shape, noise.shape[1]
    top, scratch = logs.amax(2), Scratch.of(logs)
    best, mass = scratch.take("best", heads, 1, num_nodes), torch.zeros_like(top)
    for rows in chunks(num_nodes, 4 * heads * num_features, logs.device):
        relative = scratch.take("shared", heads, num_features, rows.stop - rows.start)
        torch.sub(logs[..., rows], top[..., None], out=relative)
        best[:, 0, rows] = peaks_of(relative)
        mass += relative.exp_().sum(2)
    # No exponent of a key is further above the top of its feature than this.
    scores = torch.add(best, noise, alpha=1 / temperature, out=scratch.take("scores", *noise.shape))
    leading, leaders = scores.topk(min(LEADERS, num_nodes), 2, sorted=False)
    led = logs[:, None].expand(-1, draws, -1, -1).gather(3, leaders[:, :, None].expand(-1, -1, num_features, -1))
    shifts = led.add_(noise.gather(2, leaders)[:, :, None], alpha=1 / temperature).amax(3)
    lowest = (shifts - top[:, None]).amin(2)
    heavy = scores > (lowest - reach(temperature, logs.dtype))[..., None]
    counts = heavy.sum(2)
    too_many = int(counts.sum()) > MOST_HEAVY * heavy.numel()
    if too_many or float((leading.amin(2) - lowest).amax()) > HIGHEST:
        return None
    in_heads, _, nodes = heavy.nonzero().unbind(1)
    return HeavyKeys(in_heads, nodes, noise[heavy].div_(temperature), counts, shifts, top + mass.log_())


def summarize_heavy_keys(logs: Tensor, values: Tensor, heavy: HeavyKeys) -> tuple[Tensor, Tensor, Tensor]:
    """Log masses [h, k, m], means [h, k, m, c] and noise-free log masses [h, m] of log features [n, h, m]."""
    log_mass, mean, noise_free = _SummarizeHeavyKeys.apply(logs, values, heavy)
    return log_mass, mean, noise_free


class _SummarizeHeavyKeys(torch.autograd.Function):
    """Keeps the weights of the heavy keys; a last column of ones among the values adds up their masses."""

    @staticmethod
    def forward(ctx: Any, logs: Tensor, values: Tensor, heavy: HeavyKeys) -> tuple[Tensor, Tensor, Tensor]:
        counts = heavy.counts.flatten()
        weights = logs[heavy.nodes, heavy.heads]  # [s, m]
        weights += heavy.log_weights[:, None]
        weights -= heavy.shifts.flatten(0, 1).repeat_interleave(counts, 0)
        weights.exp_()
        rows = _with_ones(values, heavy.nodes)
        sums = values.new_empty(*heavy.shifts.shape, rows.shape[1])
        lengths = counts.tolist()
        for out, some, their in zip(sums.flatten(0, 1), weights.split(lengths), rows.split(lengths), strict=True):
            torch.mm(some.t(), their, out=out)
        mass = sums[..., -1].contiguous()
        mean = sums[..., :-1] / mass[..., None]
        ctx.save_for_backward(logs, values, weights, mass, mean)
        ctx.heavy = heavy
        return heavy.shifts + mass.log(), mean, heavy.noise_free

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log_mass: Tensor, grad_mean: Tensor, grad_noise_free: Tensor) -> Any:
        logs, values, weights, mass, mean = ctx.saved_tensors
        heavy: HeavyKeys = ctx.heavy
        offset = grad_log_mass - (grad_mean * mean).sum(3)
        pulls = (torch.cat([grad_mean, offset[..., None]], 3) / mass[..., None]).flatten(0, 1)
        rows = _with_ones(values, heavy.nodes)
        pulled, returned = torch.empty_like(weights), rows.new_empty(len(rows), values.shape[1])
        lengths = heavy.counts.flatten().tolist()
        parts = (part.split(lengths) for part in (weights, rows, pulled, returned))
        for pull, some, their, out, back in zip(pulls, *parts, strict=True):
            torch.mm(their, pull.t(), out=out)
            torch.mm(some, pull[:, :-1], out=back)
        grad_logs = _noise_free_backward(logs.movedim(0, -1), heavy.noise_free, grad_noise_free)
        lengths = heavy.counts.sum(1).tolist()
        by_head = (part.split(lengths) for part in (heavy.nodes, pulled.mul_(weights)))
        for grad, nodes, part in zip(grad_logs, *by_head, strict=True):
            grad.index_add_(1, nodes, part.t())
        return grad_logs.movedim(-1, 0), torch.zeros_like(values).index_add_(0, heavy.nodes, returned), None


def _with_ones(values: Tensor, nodes: Tensor) -> Tensor:
    """The values [s, c + 1] of some nodes, and a column of ones."""
    rows = values.new_ones(len(nodes), values.shape[1] + 1)
    rows[:, :-1] = values.index_select(0, nodes)
    return rows


def _noise_free_backward(logs: Tensor, noise_free: Tensor, grad: Tensor) -> Tensor:
    """The gradient of log features [h, m, n], given that [h, m] of their log masses without noise."""
    grad_logs = torch.empty_like(logs)
    for rows in chunks(logs.shape[2], logs.shape[0] * logs.shape[1], logs.device):
        part = torch.sub(logs[..., rows], noise_free[..., None], out=grad_logs[..., rows])
        part.exp_().mul_(grad[..., None])
    return grad_logs
