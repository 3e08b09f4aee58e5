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

import torch
import torch.nn.functional as F
from torch import Tensor

from nfdist.attention import ops
from nfdist.attention.kernel import Kernel, KeyFeatures
from nfdist.errors import ConfigError


@dataclass(frozen=True)
class KeySummary:
    """Log masses [h, k, m] and mean values [h, k, m, d] under noise, and the log masses [h, m] without noise.

    With epsilon there is one row m more, of a feature that is 1 for every key, and `peak` [h] is the largest w.k.
    """

    log_mass: Tensor
    mean: Tensor
    noise_free_log_mass: Tensor
    peak: Tensor | None = None

    @staticmethod
    def empty(like: "KeySummary") -> "KeySummary":
        """The summary of no keys: the identity of merge. Its log masses are the lowest finite number."""
        lowest = torch.finfo(like.log_mass.dtype).min
        return KeySummary(
            torch.full_like(like.log_mass, lowest),
            torch.zeros_like(like.mean),
            torch.full_like(like.noise_free_log_mass, lowest),
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
        noise_free = torch.logaddexp(self.noise_free_log_mass, other.noise_free_log_mass)
        peak = None if self.peak is None or other.peak is None else torch.maximum(self.peak, other.peak)
        return KeySummary(log_mass, mean, noise_free, peak)

    def to(self, device: torch.device) -> "KeySummary":
        peak = None if self.peak is None else self.peak.to(device)
        return KeySummary(self.log_mass.to(device), self.mean.to(device), self.noise_free_log_mass.to(device), peak)

    def mapped(self, weight: Tensor, bias: Tensor) -> "KeySummary":
        """The summary as if every value had been mapped by each head's weight [h, d', d] and bias [h, d'] before."""
        mean = torch.baddbmm(bias[:, None], self.mean.flatten(1, 2), weight.mT).unflatten(1, self.mean.shape[1:3])
        return KeySummary(self.log_mass, mean, self.noise_free_log_mass, self.peak)

    def for_queries(self, kernel: Kernel) -> "KeySummary":
        """The summary of the features that queries meet: with epsilon, its own term joins every feature."""
        assert self.log_mass.shape[2] == kernel.num_features + (kernel.epsilon > 0), "summary and queries: one kernel"
        if self.peak is None:
            return self
        log_epsilon = math.log(kernel.epsilon)
        log_mass = self.log_mass[:, :, :-1] - self.peak[:, None, None]
        constant = (self.log_mass[:, :, -1:] + log_epsilon).expand_as(log_mass)
        log_mass, mean = _merge(log_mass, self.mean[:, :, :-1], constant, self.mean[:, :, -1:])
        noise_free = self.noise_free_log_mass[:, :-1] - self.peak[:, None]
        noise_free = torch.logaddexp(noise_free, self.noise_free_log_mass[:, -1:] + log_epsilon)
        return KeySummary(log_mass, mean, noise_free, self.peak)


def summarize(features: KeyFeatures, values: Tensor, kernel: Kernel, noise: Tensor | None = None) -> KeySummary:
    """The summary of keys, by their features, and values [n, c] that the heads share, under noise [n, h, k] or none.

    Differentiable in features and values. Without noise there is one draw, of zeros.
    """
    logs = features.logs if kernel.epsilon == 0 else F.pad(features.logs, (0, 1))
    return KeySummary(*ops.summarize(logs, values, noise, kernel.temperature), features.peak)


def _merge(log_mass: Tensor, mean: Tensor, other_log_mass: Tensor, other_mean: Tensor) -> tuple[Tensor, Tensor]:
    top = torch.maximum(log_mass, other_log_mass).detach()
    mine, theirs = (log_mass - top).exp(), (other_log_mass - top).exp()
    both = mine + theirs
    return top + both.log(), (mine / both)[..., None] * mean + (theirs / both)[..., None] * other_mean
