"""Noise and dropout masks by node id: the very hashes of the CPU, a whole tensor at once."""

import sys

import torch
from torch import Tensor

from nfdist.attention.ops.cpu.noise import gumbel_of
from nfdist.devices import sent
from nfdist.seeds import hash_id, hash_ids


def gumbel(key: int, node_ids: Tensor, streams: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """See `definition.gumbel`."""
    halves = _hash(key, node_ids, -(-streams // 2), torch.int32)[:, :streams]  # the lower half is the first
    return gumbel_of((halves & 0x7FFFFFFF).to(dtype))


def keep_mask(key: int, node_ids: Tensor, channels: int, drop: float) -> tuple[Tensor, float]:
    """See `definition.keep_mask`."""
    dropped = round(drop * 65536)
    quarters = _hash(key, node_ids, -(-channels // 4), torch.int16)[:, :channels]
    return quarters >= dropped - 32768, 65536 / (65536 - dropped)


def _hash(key: int, node_ids: Tensor, streams: int, word: torch.dtype) -> Tensor:
    """Hashes of so many streams as words [n, words]. The streams' own keys are few, and come from the CPU."""
    stream_keys = torch.tensor([hash_id(key, stream) for stream in range(streams)])
    bits = hash_ids(sent(stream_keys, node_ids.device), node_ids[:, None], at_once=sys.maxsize)
    return bits.flatten().view(word).view(len(node_ids), streams * 8 // word.itemsize)
