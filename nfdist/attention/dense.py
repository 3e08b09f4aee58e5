"""The N x N definition of the attention, written to be read: the oracle of the tests, imported by nothing else."""

import math

import torch
from torch import Tensor

from nfdist.attention.kernel import Kernel


def dense_features(queries: Tensor, keys: Tensor, kernel: Kernel) -> tuple[Tensor, Tensor]:
    """phi(q) and phi(k), [n, h, m] each, in logarithms, epsilon included."""
    if kernel.epsilon == 0:
        return _log_phi(queries, kernel), _log_phi(keys, kernel)
    query_peak = _project(queries, kernel)[1].amax(2, keepdim=True).detach()
    key_peak = _project(keys, kernel)[1].amax((0, 2), keepdim=True).detach()
    epsilon = queries.new_tensor(math.log(kernel.epsilon))
    return (
        torch.logaddexp(_log_phi(queries, kernel) - query_peak, epsilon),
        torch.logaddexp(_log_phi(keys, kernel) - key_peak, epsilon),
    )


def dense_log_weights(queries: Tensor, keys: Tensor, kernel: Kernel, noise: Tensor | None = None) -> Tensor:
    """log of the attention weight [h, k, n queries, n keys], from the same random features; rows sum to 1."""
    query_features, key_features = dense_features(queries, keys, kernel)
    scores = torch.logsumexp(query_features[:, None] + key_features[None], dim=3).permute(2, 0, 1)[:, None]
    if noise is not None:
        scores = scores + noise.permute(1, 2, 0)[:, :, None] / kernel.temperature
    return scores.log_softmax(3)


def dense_attend(queries: Tensor, keys: Tensor, values: Tensor, kernel: Kernel, noise: Tensor | None = None) -> Tensor:
    """The attention output [n, h, c], averaged over the draws."""
    weights = dense_log_weights(queries, keys, kernel, noise).exp()
    return torch.einsum("hkuv,vhc->uhc", weights, values) / weights.shape[1]


def exact_log_weights(queries: Tensor, keys: Tensor, temperature: float, noise: Tensor) -> Tensor:
    """The weights [h, k, n, n] with the exact exponential kernel, which random features only estimate."""
    scores = torch.einsum("uhd,vhd->huv", queries, keys).div(math.sqrt(queries.shape[2]))
    return ((scores[:, None] + noise.permute(1, 2, 0)[:, :, None]) / temperature).log_softmax(3)


def _log_phi(rows: Tensor, kernel: Kernel) -> Tensor:
    scaled, projected = _project(rows, kernel)
    return projected - scaled.square().sum(2, keepdim=True) / 2 - math.log(kernel.num_features) / 2


def _project(rows: Tensor, kernel: Kernel) -> tuple[Tensor, Tensor]:
    scaled = rows / (kernel.channels**0.25 * kernel.temperature**0.5)
    return scaled, torch.einsum("nhd,md->nhm", scaled, kernel.directions)
