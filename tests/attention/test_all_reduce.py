"""The all-reduced summary is the merge of all ranks' summaries, in values and gradients, an empty rank included."""

from functools import reduce

import pytest
import torch
from torch import Tensor

from nfdist import seeds
from nfdist.attention import ops
from nfdist.attention.all_reduce import all_reduce_summary
from nfdist.attention.kernel import Kernel
from nfdist.attention.summary import KeySummary, summarize
from nfdist.world import World
from tests.worlds import run_world

HEADS, CHANNELS, DRAWS = 2, 4, 3
NODES = (30, 7, 0)  # of each rank


def summary_of(rank: int, epsilon: float) -> tuple[KeySummary, list[Tensor]]:
    """A rank's summary, of keys of another scale than the other ranks', and what it depends on."""
    generator = seeds.generator(rank, "keys")
    shape = (NODES[rank], HEADS, CHANNELS)
    keys = (torch.randn(shape, generator=generator, dtype=torch.float64) * (1 + rank / 4)).requires_grad_()
    values = torch.randn(NODES[rank], CHANNELS, generator=generator, dtype=torch.float64).requires_grad_()
    noise = ops.gumbel(seeds.derive(0, "noise"), torch.arange(NODES[rank]) + 100 * rank, HEADS * DRAWS, torch.float64)
    kernel = Kernel.draw(6, CHANNELS, 0.25, seeds.generator(0, "kernel"), epsilon=epsilon, dtype=torch.float64)
    return summarize(kernel.key_features(keys), values, kernel, noise.view(-1, HEADS, DRAWS)), [keys, values]


def weighed(summary: KeySummary, rank: int) -> Tensor:
    """A number that depends on every entry of a summary, in another way on each rank."""
    parts = (summary.log_mass, summary.mean, summary.noise_free_log_mass)
    weighted = [
        (part * torch.randn(part.shape, generator=seeds.generator(rank, "weights", index), dtype=part.dtype)).sum()
        for index, part in enumerate(parts)
    ]
    return torch.stack(weighted).sum()


def compare(world: World) -> None:
    for epsilon in (0.0, 1e-6):
        mine, inputs = summary_of(world.rank, epsilon)
        merged_here = all_reduce_summary(mine, world)
        weighed(merged_here, world.rank).backward()
        everyone = [summary_of(rank, epsilon) for rank in range(world.size)]
        merged = reduce(KeySummary.merge, (summary for summary, _ in everyone))
        torch.stack([weighed(merged, rank) for rank in range(world.size)]).sum().backward()
        pairs: list[tuple[Tensor | None, Tensor | None]]
        pairs = [(merged_here.log_mass, merged.log_mass), (merged_here.mean, merged.mean)]
        pairs += [(merged_here.noise_free_log_mass, merged.noise_free_log_mass)]
        pairs += [(one.grad, other.grad) for one, other in zip(inputs, everyone[world.rank][1], strict=True)]
        for left, right in pairs:
            torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)
        assert (merged_here.peak is None) == (merged.peak is None)
        if merged_here.peak is not None and merged.peak is not None:
            assert torch.equal(merged_here.peak, merged.peak)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_all_reduce_is_the_merge_of_all_ranks(size: int) -> None:
    run_world(size, compare)
