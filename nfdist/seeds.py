"""Randomness as a pure function of names and node ids.

Nothing here reads or moves the process-wide generator. Whatever belongs to a node (Gumbel noise, a dropout mask) is a
hash of a key and the node's id, so it is the same on every rank, in every chunk and again in the backward pass.
"""

import hashlib

import numpy as np
import torch
from torch import Tensor

_WEYL = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: consecutive ids land far apart
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, None))
_HASHES_AT_ONCE = 1 << 17  # int64 values: a megabyte, so that the rounds of the hash stay in cache


def derive(seed: int, *path: str | int) -> int:
    """A 63-bit seed for one named purpose, independent of every other purpose."""
    digest = hashlib.blake2b(repr((seed, *path)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(seed: int, *path: str | int) -> torch.Generator:
    """A CPU generator for one named purpose."""
    return torch.Generator().manual_seed(derive(seed, *path))


def numpy_generator(seed: int, *path: str | int) -> np.random.Generator:
    """A numpy generator for one named purpose."""
    return np.random.Generator(np.random.Philox(derive(seed, *path)))


def gumbel(key: int, node_ids: Tensor, streams: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Gumbel(0, 1) noise [n, streams]: entry (i, s) depends on the key, s and node_ids[i] alone.

    It lies in memory as [streams, n], as attention wants it.
    """
    bits = _hash(_stream_keys(key, -(-streams // 2), node_ids.device)[:, None], node_ids[None, :])
    # One 64-bit hash serves two streams. The fraction has fine steps near 0, where the largest noise comes from.
    halves = (bits.view(torch.int32) & 0x7FFFFFFF).unflatten(1, (-1, 2)).transpose(1, 2)  # the lower half is the first
    tail = torch.empty(halves.shape, dtype=dtype, device=node_ids.device).copy_(halves)
    tail.add_(0.5).mul_(-(2.0**-31)).clamp_(min=torch.finfo(dtype).eps / 2 - 1)
    return tail.log1p_().neg_().log_().neg_().flatten(0, 1)[:streams].t()


def keep_mask(key: int, node_ids: Tensor, channels: int, drop: float) -> tuple[Tensor, float]:
    """A boolean dropout mask [n, channels] by node id, and the factor that keeps the mean.

    One 64-bit hash serves four channels, so `drop` is rounded to a multiple of 2^-16.
    """
    dropped = round(drop * 65536)
    bits = _hash(_stream_keys(key, -(-channels // 4), node_ids.device)[None, :], node_ids[:, None])
    return bits.view(torch.int16)[:, :channels] >= dropped - 32768, 65536 / (65536 - dropped)


def keep_pairs(key: int, sources: Tensor, targets: Tensor, drop: float) -> Tensor:
    """Which pairs of node ids are kept, a boolean [pairs]: by the key and both ids, in this order, alone."""
    bits = _hash(_hash(torch.tensor(key, device=sources.device), sources), targets)
    return (bits & 0xFFFF) >= round(drop * 65536)


def _stream_keys(key: int, streams: int, device: torch.device) -> Tensor:
    return _hash(torch.tensor(key, device=device), torch.arange(streams, device=device))


def _hash(keys: Tensor, numbers: Tensor) -> Tensor:
    """SplitMix64 of keys + numbers, broadcast together: int64 tensors whose bits all depend on both."""
    out = torch.add(keys, numbers, alpha=_signed(_WEYL))
    flat = out.view(-1)
    for start in range(0, flat.numel(), _HASHES_AT_ONCE):
        part = flat[start : start + _HASHES_AT_ONCE]
        for shift, multiplier in _ROUNDS:
            part ^= (part >> shift) & ((1 << (64 - shift)) - 1)
            if multiplier is not None:
                part *= _signed(multiplier)
    return out


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word
