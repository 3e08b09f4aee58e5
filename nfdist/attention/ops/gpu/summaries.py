"""Summarize, with the exponents of every draw: exact at any scale, with no look at which keys are heavy."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.ops.chunks import chunks
from nfdist.attention.ops.gpu.attention import logsumexp_of

Summary = tuple[Tensor, Tensor]  # log masses [h, k, m] and means [h, k, m, c]


def summarize(
    logs: Tensor, values: Tensor, noise: Tensor | None, temperature: float, *, chunk_rows: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """See `definition.summarize`; neither pass holds more of [n, h, k, m] than a chunk of rows."""
    # The last draw is without noise; its means are wanted only where there is no other.
    draws = 1 if noise is None else noise.shape[2]
    noise = None if noise is None else F.pad(noise, (0, 1))
    log_mass, mean, noise_free = _Summarize.apply(logs, values, noise, 1 / temperature, draws, chunk_rows)
    return log_mass, mean, noise_free


def _exponents(logs: Tensor, noise: Tensor | None, sharpness: float) -> Tensor:
    """The log weights of keys [n, h, k, m], in memory that may be used up."""
    logs = logs[:, :, None]
    if noise is None:
        return logs.clone(memory_format=torch.contiguous_format)
    return torch.add(logs, noise[..., None], alpha=sharpness)


def _summary(exponents: Tensor, values: Tensor) -> Summary:
    top = exponents.amax(0)
    weights = exponents.sub_(top).exp_()
    mass = weights.sum(0)
    mean = torch.mm(weights.flatten(1).t(), values).view(*mass.shape, -1).div_(mass[..., None])
    return mass.log_().add_(top), mean


def _merge(parts: Sequence[Summary], empty: tuple[int, ...], values: Tensor) -> Summary:
    """The summary of all keys, by those of chunks; of no key if there is none."""
    if not parts:
        lowest = values.new_full(empty, torch.finfo(values.dtype).min)
        return lowest, values.new_zeros(*empty, values.shape[1])
    if len(parts) == 1:
        return parts[0]
    log_masses, means = (torch.stack(part, -1) for part in zip(*parts, strict=True))
    shares = log_masses.softmax(-1)
    return logsumexp_of(log_masses, shares), means.mul_(shares[..., None, :]).sum(-1)


class _Summarize(torch.autograd.Function):
    """Keeps its inputs and what it makes of them; weights are made again."""

    @staticmethod
    def forward(
        ctx: Any,
        logs: Tensor,
        values: Tensor,
        noise: Tensor | None,
        sharpness: float,
        draws: int,
        chunk_rows: int | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        (_, heads, num_features), width = logs.shape, 1 if noise is None else draws + 1
        ctx.rows = list(chunks(len(logs), heads * width * num_features, logs.device, chunk_rows))
        parts = [
            _summary(_exponents(logs[rows], None if noise is None else noise[rows], sharpness), values[rows])
            for rows in ctx.rows
        ]
        log_mass, mean = _merge(parts, (heads, width, num_features), values)
        mean = mean[:, :draws]
        ctx.save_for_backward(logs, values, noise, log_mass, mean)
        ctx.sharpness = sharpness
        return log_mass[:, :draws], mean, log_mass[:, -1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log_mass: Tensor, grad_mean: Tensor, grad_noise_free: Tensor) -> Any:
        logs, values, noise, log_mass, mean = ctx.saved_tensors
        offset, pulls = torch.zeros_like(log_mass), mean.new_zeros(*log_mass.shape, mean.shape[3])
        pulls[:, : mean.shape[1]] = grad_mean
        torch.sub(grad_log_mass, (grad_mean * mean).sum(3), out=offset[:, : mean.shape[1]])
        offset[:, -1].add_(grad_noise_free)
        offset, pulls = offset.flatten(), pulls.flatten(0, 2)
        grad_logs, grad_values = logs.new_empty(logs.shape), torch.empty_like(values)
        for rows in ctx.rows:
            weights = _exponents(logs[rows], None if noise is None else noise[rows], ctx.sharpness)
            weights.sub_(log_mass).exp_()
            torch.mm(weights.flatten(1), pulls, out=grad_values[rows])
            pull = torch.addmm(offset, values[rows], pulls.t()).view_as(weights).mul_(weights)
            torch.sum(pull, 2, out=grad_logs[rows])
        return grad_logs, grad_values, None, None, None, None
