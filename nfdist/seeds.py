"""Randomness as a pure function of names and node ids.

Nothing here reads or moves the process-wide generator. Whatever belongs to a node (Gumbel noise, a dropout mask: see
attention/ops) is a hash of a key and the node's id, so it is the same on every rank, in every chunk and again in the
backward pass.
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


def keep_pairs(key: int, sources: Tensor, targets: Tensor, drop: float) -> Tensor:
    """Which pairs of node ids are kept, a boolean [pairs]: by the key and both ids, in this order, alone."""
    bits = hash_ids(hash_ids(torch.full((), key, device=sources.device), sources), targets)
    return (bits & 0xFFFF) >= round(drop * 65536)


def choose_nodes(key: int, node_ids: Tensor, share: float) -> Tensor:
    """Which nodes are of a random share, a boolean [n]: by the key and the node's id alone."""
    bits = hash_ids(torch.full((), key, device=node_ids.device), node_ids)
    return (bits & 0x7FFFFFFF) < round(share * (1 << 31))


def hash_ids(keys: Tensor, numbers: Tensor, at_once: int = _HASHES_AT_ONCE) -> Tensor:
    """SplitMix64 of keys + numbers, broadcast together: int64 tensors whose bits all depend on both."""
    out = torch.add(keys, numbers, alpha=_signed(_WEYL))
    flat = out.view(-1)
    for start in range(0, flat.numel(), at_once):
        part = flat[start : start + at_once]
        for shift, multiplier in _ROUNDS:
            part ^= (part >> shift) & ((1 << (64 - shift)) - 1)
            if multiplier is not None:
                part *= _signed(multiplier)
    return out


def hash_id(key: int, number: int) -> int:
    """`hash_ids` of two numbers, without torch."""
    word = (key + number * _WEYL) % (1 << 64)
    for shift, multiplier in _ROUNDS:
        word ^= word >> shift
        word = word * (multiplier or 1) % (1 << 64)
    return _signed(word)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word
