"""Features of queries and keys: plain products of matrices are torch's; keys and their squares meet in one kernel.

Features lie in memory node after node, [n, h, m]: the edge likelihood gathers those of a node.
"""

import math
from functools import partial

import triton
import triton.language as tl
from torch import Tensor

from nfdist.attention.ops.key_features import KeyLogs, KeyMap, Project
from nfdist.attention.ops.triton_kernels.launch import addressable, arithmetic, count, launch, tile

_BLOCK_NODES = 64


def _forward(keys: Tensor, directions: Tensor, half_square: float) -> Tensor:
    (nodes, heads, channels), num_features, keys = keys.shape, len(directions), addressable(keys)
    logs = keys.new_empty(nodes, heads, num_features)
    sizes = {"block_n": _BLOCK_NODES, "block_m": tile(num_features), "block_d": tile(channels, 32), "num_warps": 8}
    constants = {"half_square": half_square, "constant": math.log(num_features) / 2}
    grid = (count(nodes, _BLOCK_NODES), count(num_features, sizes["block_m"]), heads)
    arguments = (keys, directions.contiguous(), logs, nodes, num_features, channels, *keys.stride())
    launch(_key_logs_kernel, grid, *arguments, **constants, **sizes, **arithmetic(keys))
    return logs


def _backward(keys: Tensor, grad: Tensor, directions: Tensor, half_square: float) -> Tensor:
    (nodes, heads, channels), num_features, keys = keys.shape, len(directions), addressable(keys)
    grad_keys = keys.new_empty(keys.shape)
    sizes = {"block_n": _BLOCK_NODES, "block_m": tile(num_features, 32), "block_d": tile(channels), "num_warps": 8}
    grid = (count(nodes, _BLOCK_NODES), count(channels, sizes["block_d"]), heads)
    grad = addressable(grad)
    arguments = (keys, grad, directions.contiguous(), grad_keys, nodes, num_features, channels)
    strides = (*keys.stride(), *grad.stride())
    launch(_key_logs_backward_kernel, grid, *arguments, *strides, half_square=half_square, **sizes, **arithmetic(keys))
    return grad_keys


@triton.jit
def _key_logs_kernel(
    keys,
    directions,
    logs,
    num_nodes,
    num_features,
    channels,
    keys_n,
    keys_h,
    keys_d,
    half_square: tl.constexpr,
    constant: tl.constexpr,
    block_n: tl.constexpr,
    block_m: tl.constexpr,
    block_d: tl.constexpr,
    wide: tl.constexpr,
    precision: tl.constexpr,
):
    """w.x - |x|^2 / 2 - log(m) / 2 of a block of keys and a block of features, [n, m]."""
    rows = tl.program_id(0).to(tl.int64) * block_n + tl.arange(0, block_n)
    features = tl.program_id(1) * block_m + tl.arange(0, block_m)
    head, heads = tl.program_id(2), tl.num_programs(2)
    live, known = rows < num_nodes, features < num_features
    projected = tl.zeros([block_n, block_m], wide)
    squares = tl.zeros([block_n], wide)
    for start in range(0, channels, block_d):
        columns = start + tl.arange(0, block_d)
        inside = columns < channels
        places = rows[:, None] * keys_n + head * keys_h + columns[None, :] * keys_d
        part = tl.load(keys + places, mask=live[:, None] & inside[None, :], other=0).to(wide)
        places = features[None, :] * channels + columns[:, None]
        directed = tl.load(directions + places, mask=known[None, :] & inside[:, None], other=0).to(wide)
        projected = tl.dot(part, directed, projected, input_precision=precision, out_dtype=wide)
        squares += tl.sum(part * part, 1)
    made = projected - (half_square * squares + constant)[:, None]
    places = (rows[:, None] * heads + head) * num_features + features[None, :]
    tl.store(logs + places, made, mask=live[:, None] & known[None, :])


@triton.jit
def _key_logs_backward_kernel(
    keys,
    grad,
    directions,
    grad_keys,
    num_nodes,
    num_features,
    channels,
    keys_n,
    keys_h,
    keys_d,
    grad_n,
    grad_h,
    grad_m,
    half_square: tl.constexpr,
    block_n: tl.constexpr,
    block_m: tl.constexpr,
    block_d: tl.constexpr,
    wide: tl.constexpr,
    precision: tl.constexpr,
):
    """grad w - 2 half_square key Σ grad, of a block of keys and a block of channels, [n, d]."""
    rows = tl.program_id(0).to(tl.int64) * block_n + tl.arange(0, block_n)
    columns = tl.program_id(1) * block_d + tl.arange(0, block_d)
    head, heads = tl.program_id(2), tl.num_programs(2)
    live, inside = rows < num_nodes, columns < channels
    pulled = tl.zeros([block_n, block_d], wide)
    whole = tl.zeros([block_n], wide)
    for start in range(0, num_features, block_m):
        features = start + tl.arange(0, block_m)
        known = features < num_features
        places = rows[:, None] * grad_n + head * grad_h + features[None, :] * grad_m
        pull = tl.load(grad + places, mask=live[:, None] & known[None, :], other=0).to(wide)
        places = features[:, None] * channels + columns[None, :]
        directed = tl.load(directions + places, mask=known[:, None] & inside[None, :], other=0).to(wide)
        pulled = tl.dot(pull, directed, pulled, input_precision=precision, out_dtype=wide)
        whole += tl.sum(pull, 1)
    mask = live[:, None] & inside[None, :]
    places = rows[:, None] * keys_n + head * keys_h + columns[None, :] * keys_d
    own = tl.load(keys + places, mask=mask, other=0).to(wide)
    made = pulled - 2 * half_square * whole[:, None] * own
    tl.store(grad_keys + (rows[:, None] * heads + head) * channels + columns[None, :], made, mask=mask)


_KEY_MAP = KeyMap(_forward, _backward)
# See `definition`, which has their types.
key_logs = partial(KeyLogs.apply, _KEY_MAP)
project = partial(Project.apply, _KEY_MAP)
