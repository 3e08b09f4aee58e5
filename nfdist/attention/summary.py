"""KeySummary: all that a query needs to know of any set of keys and values, in a size that has no node axis.

For every head h, noise draw k and random feature m it holds how much mass the feature has collected and the average
value under that mass:

    log_mass[h, k, m] = log Σ_v exp(g_vk / temperature) phi(k_v)_m
    mean[h, k, m, :]  =     Σ_v exp(g_vk / temperature) phi(k_v)_m v_v / mass

The mass is kept as its logarithm and divided out of the sums, so it is its own shift: no input overflows, and the mean
of values never leaves their range. Summaries of two sets merge into the summary of their union.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.chunks import Scratch, chunks, outer
from nfdist.attention.kernel import Kernel, KeyFeatures
from nfdist.attention.standing import find_standing, may_stand_out, summarize_standing
from nfdist.errors import ConfigError


@dataclass(frozen=True)
class KeySummary:
    """Log masses [h, k, m] and mean values [h, k, m, d] under noise, and the log masses [h, m] without noise.

    With epsilon there is one row m more, of a feature that is 1 for every key, and `peak` [h] is the largest w.k.
    """

    log_mass: Tensor
    mean: Tensor
    quiet_log_mass: Tensor
    peak: Tensor | None = None

    @staticmethod
    def empty(like: "KeySummary") -> "KeySummary":
        """The summary of no keys: the identity of merge. Its log masses are the lowest finite number."""
        lowest = torch.finfo(like.log_mass.dtype).min
        return KeySummary(
            torch.full_like(like.log_mass, lowest),
            torch.zeros_like(like.mean),
            torch.full_like(like.quiet_log_mass, lowest),
            None if like.peak is None else torch.full_like(like.peak, lowest),
        )

    def merge(self, other: "KeySummary") -> "KeySummary":
        """The summary of the union of two disjoint sets of keys."""
        if self.mean.shape != other.mean.shape or (self.peak is None) != (other.peak is None):
            raise ConfigError(
                f"cannot merge summaries of shapes {list(self.mean.shape)} and {list(other.mean.shape)}: "
                "they need the same heads, draws, features, channels and epsilon"
            )
        log_mass, mean = _merge(self.log_mass, self.mean, other.log_mass, other.mean)
        quiet = torch.logaddexp(self.quiet_log_mass, other.quiet_log_mass)
        peak = None if self.peak is None or other.peak is None else torch.maximum(self.peak, other.peak)
        return KeySummary(log_mass, mean, quiet, peak)

    def mapped(self, weight: Tensor, bias: Tensor) -> "KeySummary":
        """The summary as if every value had been mapped by each head's weight [h, d', d] and bias [h, d'] before."""
        mean = torch.baddbmm(bias[:, None], self.mean.flatten(1, 2), weight.mT).unflatten(1, self.mean.shape[1:3])
        return KeySummary(self.log_mass, mean, self.quiet_log_mass, self.peak)

    def for_queries(self, kernel: Kernel) -> "KeySummary":
        """The summary of the features that queries meet: with epsilon, its own term joins every feature."""
        if self.log_mass.shape[2] != kernel.num_features + (kernel.epsilon > 0):
            raise ConfigError(
                f"a summary of {self.log_mass.shape[2]} rows does not fit a kernel of {kernel.num_features} features "
                f"and epsilon {kernel.epsilon}: summarize and attend need the same kernel"
            )
        if self.peak is None:
            return self
        log_epsilon = math.log(kernel.epsilon)
        log_mass = self.log_mass[:, :, :-1] - self.peak[:, None, None]
        constant = (self.log_mass[:, :, -1:] + log_epsilon).expand_as(log_mass)
        log_mass, mean = _merge(log_mass, self.mean[:, :, :-1], constant, self.mean[:, :, -1:])
        quiet = self.quiet_log_mass[:, :-1] - self.peak[:, None]
        quiet = torch.logaddexp(quiet, self.quiet_log_mass[:, -1:] + log_epsilon)
        return KeySummary(log_mass, mean, quiet, self.peak)


def summarize(
    features: KeyFeatures,
    values: Tensor,
    kernel: Kernel,
    noise: Tensor | None = None,
    *,
    chunk_rows: int | None = None,
) -> KeySummary:
    """The summary of keys, by their features, and values [n, c] that the heads share, under noise [n, h, k] or none.

    Differentiable in features and values; neither pass holds anything of size [n, k, m]. Without noise there is one
    draw, of zeros.
    """
    logs = features.logs if kernel.epsilon == 0 else F.pad(features.logs, (0, 1))
    if values.ndim != 2 or len(values) != len(logs):
        raise ConfigError(f"values must be [nodes, channels] for {len(logs)} keys, got {list(values.shape)}")
    if noise is None:
        log_mass, mean, _ = _Summarize.apply(logs, values, logs.new_zeros(logs.shape[1], 1, len(logs)), 1, chunk_rows)
        return KeySummary(log_mass, mean, log_mass[:, 0], features.peak)
    if noise.ndim != 3 or noise.shape[:2] != logs.shape[:2] or noise.shape[2] == 0:
        raise ConfigError(
            f"noise must be [nodes, heads, draws] for keys of {list(logs.shape[:2])}, got {list(noise.shape)}"
        )
    if logs.device.type == "cpu" and may_stand_out(len(logs), kernel.temperature, logs.dtype):
        standing = find_standing(logs.movedim(0, -1), noise.movedim(0, -1), kernel.temperature)
        if standing is not None:
            return KeySummary(*summarize_standing(logs, values, standing), features.peak)
    noise, draws = noise.movedim(0, -1), noise.shape[2]
    log_weights = torch.cat([noise / kernel.temperature, torch.zeros_like(noise[:, :1])], 1)  # the last without noise
    log_mass, mean, top = _Summarize.apply(logs, values, log_weights, draws, chunk_rows)
    if len(logs) and float((log_mass - top[:, None]).detach().min().exp()) <= smallest_factor(logs.dtype):
        # Some draw fell too far below the others to share their exponential: one at a time, each is exact.
        alone = [
            _Summarize.apply(logs, values, one, int(draw < draws), chunk_rows)
            for draw, one in enumerate(log_weights.split(1, 1))
        ]
        log_mass, mean = (torch.cat([one[i] for one in alone], 1) for i in (0, 1))
    return KeySummary(log_mass[:, :-1], mean, log_mass[:, -1], features.peak)


def smallest_factor(dtype: torch.dtype) -> float:
    """How small a factor may be that draws are told apart by: what it multiplies still has room above underflow."""
    return float(torch.finfo(dtype).tiny ** 0.7)


def _merge(log_mass: Tensor, mean: Tensor, other_log_mass: Tensor, other_mean: Tensor) -> tuple[Tensor, Tensor]:
    top = torch.maximum(log_mass, other_log_mass).detach()
    mine, theirs = (log_mass - top).exp(), (other_log_mass - top).exp()
    both = mine + theirs
    return top + both.log(), (mine / both)[..., None] * mean + (theirs / both)[..., None] * other_mean


class _Summarize(torch.autograd.Function):
    """Log masses [h, k, m] of all draws, means [h, ., m, c] of the first so many, and the shift of the masses [h, m].

    Draws are given by the log weights g [h, k, n] of keys. They share one exponential of each key, taken at its
    largest log weight: weight[v, k, m] is exp(log phi(k_v)_m + max_k g_vk - top_m) exp(g_vk - max_k g_vk). For one draw
    that is exact at any scale; for more, the caller looks whether some draw fell so far below the shift that the
    product underflowed.
    """

    @staticmethod
    def forward(
        ctx: Any, logs: Tensor, values: Tensor, log_weights: Tensor, means: int, chunk_rows: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        logs = logs.movedim(0, -1)
        (heads, num_features, num_nodes), draws = logs.shape, log_weights.shape[1]
        largest = log_weights.amax(1, keepdim=True)
        own = torch.sub(log_weights, largest).exp_()
        every = logs + largest
        top = every.amax(2) if num_nodes else logs.new_full((heads, num_features), torch.finfo(logs.dtype).min)
        mass = logs.new_zeros(heads, draws, num_features)
        sums = logs.new_zeros(heads, means, num_features, values.shape[1])
        scratch = Scratch.of(logs)
        for rows in chunks(num_nodes, heads * draws * num_features, logs.device, chunk_rows):
            shared = every[..., rows].sub_(top[..., None]).exp_()
            mass.baddbmm_(own[..., rows], shared.mT)
            sums.flatten(0, 2).addmm_(outer(shared, own[:, :means, rows], scratch), values[rows])
        if num_nodes == 0:
            mass += 1  # nothing was added: the log mass stays the lowest number and the mean 0
        log_mass = top[:, None] + mass.log()
        mean = sums / mass[:, :means, :, None]
        ctx.save_for_backward(every, values, own, log_mass, mean, top)
        ctx.chunk_rows = chunk_rows
        ctx.mark_non_differentiable(top)
        return log_mass, mean, top

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log_mass: Tensor, grad_mean: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        every, values, own, log_mass, mean, top = ctx.saved_tensors
        heads, means, num_features, _ = mean.shape
        lift = (top[:, None] - log_mass).exp_()
        offset = lift * grad_log_mass
        lift = lift[:, :means]
        offset[:, :means] -= lift * (grad_mean * mean).sum(3)
        grad_sums = (lift[..., None] * grad_mean).flatten(0, 2)
        grad_logs, grad_values = torch.empty_like(every), torch.empty_like(values)
        scratch = Scratch.of(every)
        for rows in chunks(len(values), heads * own.shape[1] * num_features, every.device, ctx.chunk_rows):
            shared = every[..., rows]
            total = torch.bmm(offset.mT, own[..., rows], out=scratch.take("total", *shared.shape))
            weights = outer(shared, own[:, :means, rows], scratch)
            torch.mm(weights.t(), grad_sums, out=grad_values[rows])
            # The weights are not needed any more, and their place is still in the cache.
            pull = torch.mm(grad_sums, values[rows].t(), out=weights).view(heads, means, *shared.shape[1:])
            for draw in range(means):  # faster than a product over all draws and a sum over so short an axis
                total.addcmul_(pull[:, draw], own[:, draw, None, rows])
            torch.mul(total, shared, out=grad_logs[..., rows])
        return grad_logs.movedim(-1, 0), grad_values, None, None, None
