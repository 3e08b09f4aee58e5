"""One summary of the keys of all ranks: what lets a node attend to the batches of the whole world.

    top = max over ranks of log_mass;   w = exp(log_mass - top)
    log_mass' = top + log Σ w;          mean' = Σ w mean / Σ w

Two all-reduces forward and one backward, of a size that depends on neither batch nor graph.
"""

import torch

from nfdist.attention.summary import KeySummary
from nfdist.collectives import differentiable_total, largest
from nfdist.world import World


def all_reduce_summary(summary: KeySummary, world: World) -> KeySummary:
    """The merge of all ranks' summaries, on every rank; differentiable. Every rank must call this."""
    if world.size == 1:
        return summary
    own = summary.log_mass.numel()
    masses = torch.cat([summary.log_mass.flatten(), summary.noise_free_log_mass.flatten()])
    top = largest(world, masses.detach(), "merge summaries")
    weights = (masses - top).exp()
    weighted = weights[:own, None] * summary.mean.flatten(0, 2)
    sums = differentiable_total(world, torch.cat([weights, weighted.flatten()]), "merge summaries")
    log_masses = top + sums[: len(top)].log()
    means = sums[len(top) :].view_as(weighted) / sums[:own, None]
    return KeySummary(
        log_masses[:own].view_as(summary.log_mass),
        means.view_as(summary.mean),
        log_masses[own:].view_as(summary.noise_free_log_mass),
        None if summary.peak is None else largest(world, summary.peak, "merge peaks"),
    )
