"""One summary of the keys of all ranks: what lets a node attend to the batches of the whole world.

    top = max over ranks of log_mass;   w = exp(log_mass - top)
    log_mass' = top + log Σ w;          mean' = Σ w mean / Σ w

Two all-reduces forward and one backward, of a size that depends on neither batch nor graph.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.summary import KeySummary
from nfdist.collectives import largest, total
from nfdist.world import World


def all_reduce_summary(summary: KeySummary, world: World) -> KeySummary:
    """The merge of all ranks' summaries, on every rank; differentiable. Every rank must call this."""
    if world.size == 1:
        return summary
    log_mass, mean, noise_free = _AllReduce.apply(summary.log_mass, summary.mean, summary.noise_free_log_mass, world)
    peak = None if summary.peak is None else largest(world, summary.peak, "merge peaks")
    return KeySummary(log_mass, mean, noise_free, peak)


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_mass: Tensor, mean: Tensor, noise_free: Tensor, world: World) -> tuple[Tensor, ...]:
        masses = torch.cat([log_mass.flatten(), noise_free.flatten()])
        top = largest(world, masses, "merge summaries")
        weights = (masses - top).exp()
        weighted = (weights[: log_mass.numel()].view_as(log_mass)[..., None] * mean).flatten()
        sums = total(world, torch.cat([weights, weighted]), "merge summaries")
        logs, sums = (
            top + sums[: len(top)].log(),
            sums[len(top) :] / sums[: log_mass.numel()].repeat_interleave(mean.shape[3]),
        )
        all_mass, all_noise_free = (
            part.view_as(own)
            for part, own in zip(
                logs.split([log_mass.numel(), noise_free.numel()]), (log_mass, noise_free), strict=True
            )
        )
        all_mean = sums.view_as(mean)
        ctx.save_for_backward(log_mass, mean, noise_free, all_mass, all_mean, all_noise_free)
        ctx.world = world
        return all_mass, all_mean, all_noise_free

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        log_mass, mean, noise_free, all_mass, all_mean, all_noise_free = ctx.saved_tensors
        # Every rank's loss depends on the merged summary: its gradient is the sum of all ranks' gradients.
        summed = total(ctx.world, torch.cat([grad.flatten() for grad in grads]), "merge gradients")
        grad_mass, grad_mean, grad_noise_free = (
            part.view_as(grad) for part, grad in zip(summed.split([g.numel() for g in grads]), grads, strict=True)
        )
        own = (log_mass - all_mass).exp()
        pulled = (grad_mean * (mean - all_mean)).sum(3)
        return (
            own * (grad_mass + pulled),
            own[..., None] * grad_mean,
            (noise_free - all_noise_free).exp() * grad_noise_free,
            None,
        )
