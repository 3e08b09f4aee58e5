"""Summarize, in chunks: from all keys, or where noise lets few of them count, from the heavy ones."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.ops.chunks import Scratch, chunks, outer, smallest_factor
from nfdist.attention.ops.cpu.heavy_keys import few_are_heavy, find_heavy_keys, summarize_heavy_keys


def summarize(
    logs: Tensor, values: Tensor, noise: Tensor | None, temperature: float, *, chunk_rows: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """See `definition.summarize`; neither pass holds anything of size [n, k, m]."""
    if noise is None:
        log_mass, mean, _ = _Summarize.apply(logs, values, logs.new_zeros(logs.shape[1], 1, len(logs)), 1, chunk_rows)
        return log_mass, mean, log_mass[:, 0]
    if few_are_heavy(len(logs), temperature, logs.dtype):
        heavy = find_heavy_keys(logs.movedim(0, -1), noise.movedim(0, -1), temperature)
        if heavy is not None:
            return summarize_heavy_keys(logs, values, heavy)
    noise, draws = noise.movedim(0, -1), noise.shape[2]
    log_weights = torch.cat([noise / temperature, torch.zeros_like(noise[:, :1])], 1)  # the last without noise
    log_mass, mean, top = _Summarize.apply(logs, values, log_weights, draws, chunk_rows)
    if len(logs) and float((log_mass - top[:, None]).detach().min().exp()) <= smallest_factor(logs.dtype):
        # Some draw fell too far below the others to share their exponential: one at a time, each is exact.
        alone = [
            _Summarize.apply(logs, values, one, int(draw < draws), chunk_rows)
            for draw, one in enumerate(log_weights.split(1, 1))
        ]
        log_mass, mean = (torch.cat([one[i] for one in alone], 1) for i in (0, 1))
    return log_mass[:, :-1], mean, log_mass[:, -1]


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
