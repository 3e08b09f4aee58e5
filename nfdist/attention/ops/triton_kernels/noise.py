"""Noise and dropout masks by node id: the stream of `seeds.hash_ids`, hashed where it is used."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from nfdist.attention.ops.triton_kernels.launch import count, launch
from nfdist.seeds import _ROUNDS, _WEYL

_STEP = tl.constexpr(_WEYL)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = (tl.constexpr(shift) for shift, _ in _ROUNDS)
_FACTOR_1, _FACTOR_2 = (tl.constexpr(factor) for _, factor in _ROUNDS if factor is not None)
_GUMBEL_NODES, _MASK_NODES, _MASK_GROUPS = 256, 64, 16


def gumbel(key: int, node_ids: Tensor, streams: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """See `definition.gumbel`; it lies in memory as [streams, n], so that a draw of many nodes is read at once."""
    noise = torch.empty(streams, len(node_ids), dtype=dtype, device=node_ids.device)
    largest = 1 - torch.finfo(dtype).eps / 2
    grid = (count(len(node_ids), _GUMBEL_NODES), count(streams, 2))
    launch(_gumbel_kernel, grid, key, node_ids, noise, len(node_ids), streams, largest, block_nodes=_GUMBEL_NODES)
    return noise.t()


def keep_mask(key: int, node_ids: Tensor, channels: int, drop: float) -> tuple[Tensor, float]:
    """See `definition.keep_mask`."""
    dropped = round(drop * 65536)
    keep = torch.empty(len(node_ids), channels, dtype=torch.bool, device=node_ids.device)
    grid = (count(len(node_ids), _MASK_NODES), count(channels, 4 * _MASK_GROUPS))
    sizes = {"block_nodes": _MASK_NODES, "block_groups": _MASK_GROUPS}
    launch(_keep_mask_kernel, grid, key, node_ids, keep, len(node_ids), channels, dropped, **sizes)
    return keep, 65536 / (65536 - dropped)


@triton.jit
def hash_ids(keys, numbers):
    """`seeds.hash_ids` of unsigned words, into which a shift brings zeros."""
    bits = keys + numbers * _STEP
    bits = (bits ^ (bits >> _SHIFT_1)) * _FACTOR_1
    bits = (bits ^ (bits >> _SHIFT_2)) * _FACTOR_2
    return bits ^ (bits >> _SHIFT_3)


@triton.jit(do_not_specialize=["key"])
def _gumbel_kernel(key, node_ids, noise, num_nodes, streams, largest: tl.constexpr, block_nodes: tl.constexpr):
    """Two streams of a block of nodes: logarithms in float64 of the very numbers that the CPU has."""
    nodes = tl.program_id(0).to(tl.int64) * block_nodes + tl.arange(0, block_nodes)
    live = nodes < num_nodes
    ids = tl.load(node_ids + nodes, mask=live, other=0).to(tl.uint64)
    bits = hash_ids(hash_ids(key.to(tl.uint64), tl.program_id(1).to(tl.uint64)), ids)
    for half in tl.static_range(2):
        stream = 2 * tl.program_id(1).to(tl.int64) + half
        number = ((bits >> (32 * half)) & 0x7FFFFFFF).to(noise.dtype.element_ty)
        tail = tl.minimum((number + 0.5) * 2.0**-31, largest).to(tl.float64)
        tl.store(noise + stream * num_nodes + nodes, -tl.log(-tl.log(1 - tail)), mask=live & (stream < streams))


@triton.jit
def keep_channels(key, ids, first_group, dropped, block_groups: tl.constexpr):
    """Which channels are kept, [nodes, 4 x groups]: a hash of a node serves a group of four."""
    groups = (first_group + tl.arange(0, block_groups)).to(tl.uint64)
    bits = hash_ids(hash_ids(key.to(tl.uint64), groups)[None, :], ids[:, None].to(tl.uint64))
    quarters = bits[:, :, None] >> (16 * tl.arange(0, 4)).to(tl.uint64)[None, None, :]
    keep = ((quarters + 32768) & 0xFFFF) >= dropped
    return tl.reshape(keep, [ids.shape[0], 4 * block_groups])


@triton.jit(do_not_specialize=["key"])
def _keep_mask_kernel(
    key, node_ids, keep, num_nodes, channels, dropped, block_nodes: tl.constexpr, block_groups: tl.constexpr
):
    nodes = tl.program_id(0).to(tl.int64) * block_nodes + tl.arange(0, block_nodes)
    first_group = tl.program_id(1) * block_groups
    columns = 4 * first_group + tl.arange(0, 4 * block_groups)
    ids = tl.load(node_ids + nodes, mask=nodes < num_nodes, other=0)
    kept = keep_channels(key, ids, first_group, dropped, block_groups)
    live = (nodes < num_nodes)[:, None] & (columns < channels)[None, :]
    tl.store(keep + nodes[:, None] * channels + columns[None, :], kept, mask=live)
