"""A device draws what the CPU draws, to the bit: a node's noise and masks depend on its id and the key alone."""

import pytest
import torch

from nfdist.attention.ops import cpu, gpu

IDS = torch.randint(2**40, (1001,), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("nodes", "streams"), [(0, 2), (1, 1), (1001, 1), (1001, 5), (1001, 8)])
def test_noise_is_that_of_the_cpu(nodes: int, streams: int, dtype: torch.dtype) -> None:
    for key in (0, 7, 2**63 - 1):
        assert torch.equal(gpu.gumbel(key, IDS[:nodes], streams, dtype), cpu.gumbel(key, IDS[:nodes], streams, dtype))


@pytest.mark.parametrize(("nodes", "channels"), [(0, 3), (0, 8), (1, 1), (1001, 3), (1001, 64), (1001, 65)])
def test_masks_are_those_of_the_cpu(nodes: int, channels: int) -> None:
    for drop in (0.0, 0.2, 0.999):
        (ours, factor), (theirs, wanted) = (
            device.keep_mask(2**62 + 3, IDS[:nodes], channels, drop) for device in (gpu, cpu)
        )
        assert torch.equal(ours, theirs)
        assert factor == wanted
