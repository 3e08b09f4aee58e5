"""Noise and masks by node id are those of the CPU: the same integers, and the same logarithms to rounding."""

import pytest
import torch

from nfdist import seeds
from nfdist.attention.ops import cpu, definition
from tests.attention.ops.triton_kernels.running import DEVICE, KERNELS
from tests.comparing import difference

pytestmark = pytest.mark.accelerator
KEY = seeds.derive(3, "noise")


def node_ids(count: int) -> torch.Tensor:
    return torch.randint(1 << 40, (count,), generator=seeds.generator(1, "node ids"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("nodes", "streams"), [(0, 3), (1, 1), (300, 5), (17, 6)])
def test_noise_is_the_stream_of_the_cpu(nodes: int, streams: int, dtype: torch.dtype) -> None:
    ids = node_ids(nodes)
    noise = KERNELS.gumbel(KEY, ids.to(DEVICE), streams, dtype).cpu()
    assert noise.dtype == dtype
    for implementation in (cpu, definition):
        wanted = implementation.gumbel(KEY, ids, streams, dtype) if nodes else torch.empty(0, streams, dtype=dtype)
        assert difference(noise, wanted) < 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("drop", [0.0, 0.2, 0.5])
@pytest.mark.parametrize(("nodes", "channels"), [(0, 7), (1, 1), (17, 7), (130, 64), (3, 130)])
def test_masks_are_equal_to_the_bit(nodes: int, channels: int, drop: float) -> None:
    ids = node_ids(nodes)
    keep, factor = KERNELS.keep_mask(KEY, ids.to(DEVICE), channels, drop)
    wanted, wanted_factor = cpu.keep_mask(KEY, ids, channels, drop)
    assert torch.equal(keep.cpu(), wanted)
    assert factor == wanted_factor


def test_every_id_and_key_of_64_bits_has_its_noise() -> None:
    ids = torch.tensor([0, 1, 2**31 - 1, 2**31, 2**62, 2**63 - 1])
    for key in (0, 1, 2**31, 2**63 - 1):
        assert difference(KERNELS.gumbel(key, ids.to(DEVICE), 2).cpu(), definition.gumbel(key, ids, 2)) < 1e-6
