"""Summarize: an online softmax over the keys in every draw and feature, exact at every temperature and scale."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.ops.triton_kernels.launch import (
    addressable,
    arithmetic,
    count,
    launch,
    parts,
    row_tiles,
    tile,
    wide_type,
)

_BLOCK_KEYS, _BLOCK_PARTS = 32, 8


def summarize(logs: Tensor, values: Tensor, noise: Tensor | None, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """See `definition.summarize`; what is summed has at least float32."""
    noise = None if noise is None else addressable(noise)
    log_mass, mean, noise_free = _Summarize.apply(addressable(logs), values, noise, temperature)
    return log_mass, mean, log_mass[:, 0] if noise is None else noise_free


class _Summarize(torch.autograd.Function):
    """With noise, its absence is one draw more, which has masses and no means.

    A mass is kept as its shift, the largest exponent of all keys, and the sum of exponentials relative to it.
    """

    @staticmethod
    def forward(
        ctx: Any, logs: Tensor, values: Tensor, noise: Tensor | None, temperature: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        (nodes, heads, num_features), channels, values = logs.shape, values.shape[1], values.contiguous()
        draws = 1 if noise is None else noise.shape[2]
        masses = draws if noise is None else draws + 1
        shifts = logs.new_empty(2, heads, masses, num_features, dtype=wide_type(logs))
        log_mass, noise_free = shifts.new_empty(heads, draws, num_features), shifts.new_empty(heads, num_features)
        mean = shifts.new_empty(heads, draws, num_features, channels)
        ctx.constants = {"inverse": 1 / temperature, "has_noise": noise is not None, **arithmetic(logs)}
        if nodes:
            parts_made = _summarize_parts(logs, values, noise, masses, draws, shifts, ctx.constants)
            made = (shifts, log_mass, mean, noise_free, len(parts_made[1]), draws, num_features, channels)
            sizes = {"block_p": _BLOCK_PARTS, "block_m": _BLOCK_PARTS, "block_c": triton.next_power_of_2(channels)}
            grid = (count(num_features, _BLOCK_PARTS), masses, heads)
            launch(_merge_kernel, grid, *parts_made, *made, **sizes, wide=ctx.constants["wide"])
        else:
            for lowest in (shifts, log_mass, noise_free):
                lowest.fill_(torch.finfo(lowest.dtype).min)
            mean.zero_()
        ctx.save_for_backward(logs, values, noise, shifts, mean)
        return log_mass, mean, noise_free

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_log_mass: Tensor, grad_mean: Tensor, grad_noise_free: Tensor
    ) -> tuple[Tensor | None, ...]:
        logs, values, noise, shifts, mean = ctx.saved_tensors
        (nodes, heads, num_features), (draws, channels) = logs.shape, mean.shape[1::2]
        grad_logs, grad_values = logs.new_empty(logs.shape), torch.empty_like(values)
        grad_mean = grad_mean.contiguous()
        offset = grad_log_mass - torch.linalg.vecdot(grad_mean, mean)
        pulls = (offset.contiguous(), grad_mean, grad_noise_free.contiguous())
        arguments = (logs, values, noise, shifts, *pulls, grad_logs, grad_values)
        numbers = (nodes, heads, draws, num_features, channels, *logs.stride(), *_strides(noise))
        sizes = row_tiles(num_features, channels)
        grid = (count(nodes, sizes["block_n"]),)
        launch(_summarize_backward_kernel, grid, *arguments, *numbers, **sizes, **ctx.constants)
        return grad_logs, grad_values, None, None


def _summarize_parts(
    logs: Tensor,
    values: Tensor,
    noise: Tensor | None,
    masses: int,
    draws: int,
    like: Tensor,
    constants: dict[str, Any],
) -> tuple[Tensor, Tensor]:
    """Shifts and masses [2, parts, h, masses, m] of parts of the keys, and their means [parts, h, k, m, c]."""
    (nodes, heads, num_features), channels = logs.shape, values.shape[1]
    sizes = {"block_n": _BLOCK_KEYS, "block_m": tile(num_features), "block_c": tile(channels)}
    tiles = count(num_features, sizes["block_m"]) * count(channels, sizes["block_c"])
    num_parts, part_rows = parts(nodes, heads * masses * tiles, _BLOCK_KEYS)
    partial = like.new_empty(2, num_parts, heads, masses, num_features)
    partial_means = like.new_empty(num_parts, heads, draws, num_features, channels)
    arguments = (logs, values, noise, partial, partial_means, nodes, heads, draws, num_features, channels)
    strides = (part_rows, *logs.stride(), *_strides(noise))
    launch(_summarize_kernel, (masses * tiles, heads, num_parts), *arguments, *strides, **sizes, **constants)
    return partial, partial_means


def _strides(noise: Tensor | None) -> tuple[int, ...]:
    return (0, 0, 0) if noise is None else noise.stride()


@triton.jit
def _summarize_kernel(
    logs,
    values,
    noise,
    partial,
    partial_means,
    num_nodes,
    heads,
    draws,
    num_features,
    channels,
    part_rows,
    logs_n,
    logs_h,
    logs_m,
    noise_n,
    noise_h,
    noise_k,
    inverse: tl.constexpr,
    has_noise: tl.constexpr,
    block_n: tl.constexpr,
    block_m: tl.constexpr,
    block_c: tl.constexpr,
    wide: tl.constexpr,
    precision: tl.constexpr,
):
    """Shift, mass [m] and mean [m, c] of a part of the keys, in a head and a draw.

    The programs of a part are side by side, so that what one has read the next finds in the cache.
    """
    tiles_c = tl.cdiv(channels, block_c)
    tiles = tiles_c * tl.cdiv(num_features, block_m)
    draw, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    masses = tl.num_programs(0) // tiles
    head, part = tl.program_id(1), tl.program_id(2).to(tl.int64)
    features = tile // tiles_c * block_m + tl.arange(0, block_m)
    columns = tile % tiles_c * block_c + tl.arange(0, block_c)
    known, inside = features < num_features, columns < channels
    shift = tl.full([block_m], float("-inf"), wide)
    mass = tl.zeros([block_m], wide)
    sums = tl.zeros([block_m, block_c], wide)
    for start in range(0, tl.minimum(part_rows, num_nodes - part * part_rows), block_n):
        rows = part * part_rows + start + tl.arange(0, block_n)
        live = rows < num_nodes
        places = rows[None, :] * logs_n + head * logs_h + features[:, None] * logs_m
        exponents = tl.load(logs + places, mask=live[None, :] & known[:, None], other=0).to(wide)
        if has_noise:
            drawn_at = rows * noise_n + head * noise_h + draw * noise_k
            drawn = tl.load(noise + drawn_at, mask=live & (draw < draws), other=0).to(wide)
            exponents += drawn[None, :] * inverse
        exponents = tl.where(live[None, :], exponents, float("-inf"))
        higher = tl.maximum(shift, tl.max(exponents, 1))
        fall = tl.exp(shift - higher)
        weights = tl.exp(exponents - higher[:, None])
        shift = higher
        mass = mass * fall + tl.sum(weights, 1)
        if draw < draws:
            values_at = rows[:, None] * channels + columns[None, :]
            own = tl.load(values + values_at, mask=live[:, None] & inside[None, :], other=0).to(wide)
            sums = tl.dot(weights, own, sums * fall[:, None], input_precision=precision, out_dtype=wide)
    places = ((part * heads + head) * masses + draw) * num_features + features
    if tile % tiles_c == 0:
        tl.store(partial + places, shift, mask=known)
        tl.store(partial + tl.num_programs(2).to(tl.int64) * heads * masses * num_features + places, mass, mask=known)
    if draw < draws:
        means_at = (((part * heads + head) * draws + draw) * num_features + features[:, None]) * channels + columns[
            None, :
        ]
        tl.store(partial_means + means_at, sums / mass[:, None], mask=known[:, None] & inside[None, :])


@triton.jit
def _merge_kernel(
    partial,
    partial_means,
    shifts,
    log_mass,
    mean,
    noise_free,
    num_parts,
    draws,
    num_features,
    channels,
    block_p: tl.constexpr,
    block_m: tl.constexpr,
    block_c: tl.constexpr,
    wide: tl.constexpr,
):
    """Merges the parts, in their order, for a block of features, a draw and a head."""
    features, draw, head = tl.program_id(0) * block_m + tl.arange(0, block_m), tl.program_id(1), tl.program_id(2)
    masses, heads = tl.num_programs(1), tl.num_programs(2)
    columns, known = tl.arange(0, block_c), features < num_features
    own = (head * masses + draw) * num_features + features
    size = tl.cast(heads, tl.int64) * masses * num_features
    shift = tl.full([block_m], float("-inf"), wide)
    for start in range(0, num_parts, block_p):
        index = start + tl.arange(0, block_p).to(tl.int64)
        there = (index < num_parts)[:, None] & known[None, :]
        tops = tl.load(partial + index[:, None] * size + own[None, :], mask=there, other=float("-inf"))
        shift = tl.maximum(shift, tl.max(tops, 0))
    shift = tl.where(known, shift, 0)
    mass = tl.zeros([block_m], wide)
    sums = tl.zeros([block_m, block_c], wide)
    for start in range(0, num_parts, block_p):
        index = start + tl.arange(0, block_p).to(tl.int64)
        there = (index < num_parts)[:, None] & known[None, :]
        tops = tl.load(partial + index[:, None] * size + own[None, :], mask=there, other=float("-inf"))
        weights = tl.load(partial + (num_parts + index)[:, None] * size + own[None, :], mask=there, other=0)
        weights *= tl.exp(tops - shift[None, :])
        mass += tl.sum(weights, 0)
        if draw < draws:
            rows = ((index * heads + head) * draws + draw)[:, None] * num_features + features[None, :]
            means_at = rows[:, :, None] * channels + columns[None, None, :]
            mask = there[:, :, None] & (columns < channels)[None, None, :]
            sums += tl.sum(tl.load(partial_means + means_at, mask=mask, other=0) * weights[:, :, None], 0)
    mass = tl.where(known, mass, 1)
    tl.store(shifts + own, shift, mask=known)
    tl.store(shifts + size + own, mass, mask=known)
    if draw < draws:
        mean_rows = (head * draws + draw) * num_features + features
        tl.store(log_mass + mean_rows, shift + tl.log(mass), mask=known)
        places = mean_rows[:, None] * channels + columns[None, :]
        tl.store(mean + places, sums / mass[:, None], mask=known[:, None] & (columns < channels)[None, :])
    else:
        tl.store(noise_free + head * num_features + features, shift + tl.log(mass), mask=known)


@triton.jit
def _summarize_backward_kernel(
    logs,
    values,
    noise,
    shifts,
    offset,
    grad_mean,
    grad_noise_free,
    grad_logs,
    grad_values,
    num_nodes,
    heads,
    draws,
    num_features,
    channels,
    logs_n,
    logs_h,
    logs_m,
    noise_n,
    noise_h,
    noise_k,
    inverse: tl.constexpr,
    has_noise: tl.constexpr,
    block_n: tl.constexpr,
    block_m: tl.constexpr,
    block_c: tl.constexpr,
    wide: tl.constexpr,
    precision: tl.constexpr,
):
    """The gradients of a block of keys and values: no sum over nodes.

    weight[v, k, m] = exp(logs + noise / temperature - shift) / mass. A draw's pull on a log weight is
    grad_mean.(value - mean) + grad_log_mass, of which `offset` has what does not depend on the node.
    """
    rows = tl.program_id(0).to(tl.int64) * block_n + tl.arange(0, block_n)
    columns = tl.arange(0, block_c)
    live, inside = rows < num_nodes, columns < channels
    cells = live[:, None] & inside[None, :]
    value_places = rows[:, None] * channels + columns[None, :]
    own = tl.load(values + value_places, mask=cells, other=0).to(wide)
    returned = tl.zeros([block_n, block_c], wide)
    masses = draws + (1 if has_noise else 0)
    size = heads * masses * num_features
    for head in range(heads):
        for start in range(0, num_features, block_m):
            features = start + tl.arange(0, block_m)
            known = features < num_features
            mask = live[:, None] & known[None, :]
            places = rows[:, None] * logs_n + head * logs_h + features[None, :] * logs_m
            exponents = tl.load(logs + places, mask=mask, other=float("-inf")).to(wide)
            total = tl.zeros([block_n, block_m], wide)
            if has_noise:
                free = (head * masses + draws) * num_features + features
                free_shift = tl.load(shifts + free, mask=known, other=0)
                free_mass = tl.load(shifts + size + free, mask=known, other=1)
                free_pull = tl.load(grad_noise_free + head * num_features + features, mask=known, other=0).to(wide)
                total += tl.exp(exponents - free_shift[None, :]) * (free_pull / free_mass)[None, :]
            for draw in range(draws):
                ours = (head * masses + draw) * num_features + features
                shift = tl.load(shifts + ours, mask=known, other=0)
                mass = tl.load(shifts + size + ours, mask=known, other=1)
                relative = exponents - shift[None, :]
                if has_noise:
                    drawn_at = rows * noise_n + head * noise_h + draw * noise_k
                    relative += tl.load(noise + drawn_at, mask=live, other=0).to(wide)[:, None] * inverse
                weights = tl.exp(relative) / mass[None, :]
                ours = (head * draws + draw) * num_features + features
                means_at = ours[:, None] * channels + columns[None, :]
                pull = tl.load(grad_mean + means_at, mask=known[:, None] & inside[None, :], other=0).to(wide)
                constant = tl.load(offset + ours, mask=known, other=0).to(wide)
                pulled = tl.dot(own, tl.trans(pull), input_precision=precision, out_dtype=wide)
                total += weights * (pulled + constant[None, :])
                returned = tl.dot(weights, pull, returned, input_precision=precision, out_dtype=wide)
            places = (rows[:, None] * heads + head) * num_features + features[None, :]
            tl.store(grad_logs + places, total, mask=mask)
    tl.store(grad_values + value_places, returned, mask=cells)
