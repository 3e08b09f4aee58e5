"""Attend, with a softmax of every draw on its own: exact at any scale, with no look at how far draws are apart."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.ops.chunks import chunks


def attend(
    features: Tensor, log_mass: Tensor, mean: Tensor, noise_free: Tensor, *, chunk_rows: int | None = None
) -> tuple[Tensor, Tensor]:
    """See `definition.attend`; neither pass holds more of [n, h, k, m] than a chunk of rows."""
    outputs, log_normalizers = _Attend.apply(features, log_mass, mean, noise_free, chunk_rows)
    return outputs, log_normalizers


def logsumexp_of(logs: Tensor, softmax: Tensor) -> Tensor:
    """The log-sum-exp over the last axis, given the softmax over it: the largest weight is never too small for a log.

    Fewer launches than torch's own, which looks for infinite entries.
    """
    return logs.amax(-1) - softmax.amax(-1).log_()


def _weights(features: Tensor, log_mass: Tensor) -> Tensor:
    """How much of every feature's mean a query gets in each draw, [n, h, k, m]."""
    return torch.softmax(features.contiguous()[:, :, None] + log_mass, 3)


class _Attend(torch.autograd.Function):
    """Keeps its inputs alone; weights are made again."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, log_mass: Tensor, mean: Tensor, noise_free: Tensor, chunk_rows: int | None
    ) -> tuple[Tensor, Tensor]:
        means = mean.flatten(0, 2) / mean.shape[1]
        outputs = features.new_empty(len(features), mean.shape[3])
        for rows in chunks(len(features), log_mass.numel(), features.device, chunk_rows):
            torch.mm(_weights(features[rows], log_mass).flatten(1), means, out=outputs[rows])
        logs = features + noise_free
        ctx.save_for_backward(features, log_mass, means, noise_free)
        ctx.chunk_rows = chunk_rows
        return outputs, logsumexp_of(logs, logs.softmax(2))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_log_normalizers: Tensor) -> tuple[Tensor | None, ...]:
        features, log_mass, means, noise_free = ctx.saved_tensors
        grad_features = (features + noise_free).softmax(2).mul_(grad_log_normalizers[:, :, None])
        grad_noise_free = grad_features.sum(0)
        grad_log_mass, grad_means = torch.zeros_like(log_mass), torch.zeros_like(means)
        for rows in chunks(len(features), log_mass.numel(), features.device, ctx.chunk_rows):
            weights = _weights(features[rows], log_mass)
            grad_means.addmm_(weights.flatten(1).t(), grad[rows])
            pull = torch.mm(grad[rows], means.t()).view_as(weights)
            grad_logs = torch._softmax_backward_data(pull, weights, 3, weights.dtype)
            grad_features[rows].add_(grad_logs.sum(2))
            grad_log_mass += grad_logs.sum(0)
        grad_mean = grad_means.view(*log_mass.shape, -1) / log_mass.shape[1]
        return grad_features, grad_log_mass, grad_mean, grad_noise_free, None
