"""Positive random features, kept as logarithms: the kernel that lets a summary stand for any number of keys.

For a query or key x of `d` channels, scaled by d^(-1/4) / sqrt(temperature), and directions w_1..w_m:

    log phi(x)_i = w_i.x - |x|^2 / 2 - log(m) / 2

so that phi(q).phi(k) estimates exp(q.k / (temperature sqrt(d))) without bias.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from nfdist.attention import ops
from nfdist.devices import sent
from nfdist.errors import ConfigError


@dataclass(frozen=True)
class KeyFeatures:
    """log phi [n, h, m] of keys, without epsilon; `peak` [h], the largest w.k, exists when epsilon is in use."""

    logs: Tensor
    peak: Tensor | None


@dataclass(frozen=True)
class Kernel:
    """Random directions [m, d] at a temperature; `epsilon` is added to every feature, as published, when positive."""

    directions: Tensor
    temperature: float
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        if self.directions.ndim != 2 or 0 in self.directions.shape:
            raise ConfigError(
                f"directions must be [features, channels], both positive, got {list(self.directions.shape)}"
            )
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise ConfigError(f"temperature must be positive and finite, got {self.temperature}")
        if not (self.epsilon >= 0 and math.isfinite(self.epsilon)):
            raise ConfigError(f"epsilon must be zero or positive, got {self.epsilon}")

    @staticmethod
    def draw(
        num_features: int,
        channels: int,
        temperature: float,
        generator: torch.Generator,
        *,
        epsilon: float = 0.0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> "Kernel":
        """Blocks of orthogonal directions with the norms of Gaussian ones, drawn on the CPU in float64."""
        if num_features < 1 or channels < 1:
            raise ConfigError(f"a kernel needs at least one feature and one channel, got {num_features} and {channels}")
        blocks = -(-num_features // channels)
        gaussian = torch.randn(blocks, channels, channels, generator=generator, dtype=torch.float64)
        rotations, triangular = torch.linalg.qr(gaussian)
        # LAPACK leaves the signs open; positive diagonals make the rotation unique, hence the same on every host.
        rotations = rotations * triangular.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]
        norms = torch.randn(num_features, channels, generator=generator, dtype=torch.float64).norm(dim=1, keepdim=True)
        directions = rotations.reshape(-1, channels)[:num_features] * norms
        return Kernel(sent(directions.to(dtype), torch.device(device)), temperature, epsilon)

    @property
    def num_features(self) -> int:
        return self.directions.shape[0]

    @property
    def channels(self) -> int:
        return self.directions.shape[1]

    @cached_property
    def scaled(self) -> Tensor:
        """The directions with the scale of queries and keys in them."""
        return self.directions.mul(self.channels**-0.25 / math.sqrt(self.temperature))

    @cached_property
    def half_square(self) -> float:
        """What |x|^2 of a query or key is multiplied by for half the square of its scaled self."""
        return 0.5 / (self.temperature * math.sqrt(self.channels))

    def query_features(self, queries: Tensor) -> Tensor:
        """log phi [n, h, m] of queries [n, h, d], up to a constant a query, which cancels in every attention weight.

        With epsilon in it the constant is fixed, as published, by the query's largest w.q.
        """
        self._check(queries, "queries")
        projected = self._projected(queries)
        if self.epsilon == 0:
            return projected
        logs = ops.key_logs(queries, self.scaled, self.half_square)
        return self.add_epsilon(logs, projected.amax(2, keepdim=True))

    def key_features(self, keys: Tensor) -> KeyFeatures:
        """log phi of keys [n, h, d]."""
        self._check(keys, "keys")
        logs = ops.key_logs(keys, self.scaled, self.half_square)
        if self.epsilon == 0:
            return KeyFeatures(logs, None)
        if len(keys) == 0:
            return KeyFeatures(logs, keys.new_full(keys.shape[1:2], torch.finfo(keys.dtype).min))
        return KeyFeatures(logs, self._projected(keys.detach()).amax((0, 2)))

    def add_epsilon(self, logs: Tensor, peak: Tensor) -> Tensor:
        """log(exp(logs - peak) + epsilon); the peak is a constant under differentiation."""
        return torch.logaddexp(logs - peak.detach(), logs.new_full((), math.log(self.epsilon)))

    def _check(self, rows: Tensor, name: str) -> None:
        if rows.ndim != 3 or rows.shape[2] != self.channels:
            raise ConfigError(f"{name} must be [nodes, heads, {self.channels}], got {list(rows.shape)}")

    def _projected(self, rows: Tensor) -> Tensor:
        """w.x [n, h, m] of rows [n, h, d], lying in memory as [h, m, n]; `@` would take the nodes one by one."""
        return torch.bmm(self.scaled.expand(rows.shape[1], -1, -1), rows.permute(1, 2, 0)).movedim(-1, 0)
