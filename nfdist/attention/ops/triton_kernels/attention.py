"""Attend: a softmax over random features of every query, head and draw on its own, exact at any scale."""

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

_BLOCK_QUERIES, _BLOCK_PARTS = 32, 8


def attend(features: Tensor, log_mass: Tensor, mean: Tensor, noise_free: Tensor) -> tuple[Tensor, Tensor]:
    """See `definition.attend`; the log normalizers have at least float32."""
    outputs, log_normalizers = _Attend.apply(addressable(features), log_mass, mean, noise_free)
    return outputs, log_normalizers


class _Attend(torch.autograd.Function):
    """Keeps of a query, in each draw and without noise, its peak and the sum of exponentials relative to it."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, log_mass: Tensor, mean: Tensor, noise_free: Tensor
    ) -> tuple[Tensor, Tensor]:
        log_mass, mean, noise_free = (tensor.contiguous() for tensor in (log_mass, mean, noise_free))
        (nodes, heads, num_features), (draws, channels) = features.shape, mean.shape[1::2]
        outputs = features.new_empty(nodes, channels)
        sums = torch.empty(2, heads, draws + 1, nodes, dtype=wide_type(features), device=features.device)
        log_normalizers = sums.new_empty(nodes, heads)
        arguments = (features, log_mass, mean, noise_free, outputs, log_normalizers, sums)
        numbers = (nodes, heads, draws, num_features, channels, *features.stride())
        constants = {**row_tiles(num_features, channels), **arithmetic(features)}
        launch(_attend_kernel, (count(nodes, constants["block_n"]),), *arguments, *numbers, **constants)
        ctx.save_for_backward(features, log_mass, mean, noise_free, sums)
        return outputs, log_normalizers

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_log_normalizers: Tensor) -> tuple[Tensor, ...]:
        features, log_mass, mean, noise_free, sums = ctx.saved_tensors
        (nodes, heads, num_features), (draws, channels) = features.shape, mean.shape[1::2]
        grad, grad_log_normalizers = grad.contiguous(), grad_log_normalizers.contiguous()
        grad_features, wholes = sums.new_empty(features.shape), torch.empty_like(sums[0])
        arguments = (features, log_mass, mean, noise_free, sums, grad, grad_log_normalizers, grad_features, wholes)
        numbers = (nodes, draws, num_features, channels, *features.stride())
        constants = {**row_tiles(num_features, channels), **arithmetic(features)}
        block_k = triton.next_power_of_2(draws + 1)
        grid = (count(nodes, constants["block_n"]), heads)
        launch(_attend_backward_kernel, grid, *arguments, *numbers, block_k=block_k, **constants)
        return grad_features.to(features.dtype), *_summary_grads(
            features, log_mass, mean, noise_free, sums, wholes, grad
        )


def _summary_grads(
    features: Tensor, log_mass: Tensor, mean: Tensor, noise_free: Tensor, sums: Tensor, wholes: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of log masses, means and noise-free log masses: of parts of the queries, and then added up."""
    (nodes, heads, num_features), (draws, channels) = features.shape, mean.shape[1::2]
    sizes = {"block_n": _BLOCK_QUERIES, "block_m": tile(num_features), "block_c": tile(channels)}
    tiles = count(num_features, sizes["block_m"]) * count(channels, sizes["block_c"])
    num_parts, part_rows = parts(nodes, heads * (draws + 1) * tiles, _BLOCK_QUERIES)
    shares = sums.new_empty(num_parts, heads, draws + 1, num_features)
    partial_means = sums.new_empty(num_parts, *mean.shape)
    arguments = (features, log_mass, noise_free, sums, wholes, grad, shares, partial_means)
    numbers = (nodes, heads, draws, num_features, channels, part_rows, *features.stride())
    grid = ((draws + 1) * tiles, heads, num_parts)
    launch(_share_kernel, grid, *arguments, *numbers, **sizes, **arithmetic(features))

    grads = torch.empty_like(log_mass), torch.empty_like(mean), torch.empty_like(noise_free)
    blocks = {"block_p": _BLOCK_PARTS, "block_m": _BLOCK_PARTS, "block_c": triton.next_power_of_2(channels)}
    grid = (count(num_features, _BLOCK_PARTS), draws + 1, heads)
    added = (shares, partial_means, mean, *grads, num_parts, draws, num_features, channels)
    launch(_add_parts_kernel, grid, *added, **blocks, wide=arithmetic(features)["wide"])
    return grads


@triton.jit
def _exponents(
    features, places, live, masses, start, num_features, features_m, block_m: tl.constexpr, wide: tl.constexpr
):
    """features + masses of a block of rows and of features, [n, m]; minus infinity beyond the last feature."""
    columns = start + tl.arange(0, block_m)
    known = columns < num_features
    met = features + places[:, None] + columns[None, :] * features_m
    met = tl.load(met, mask=live[:, None] & known[None, :], other=0).to(wide)
    return met + tl.load(masses + columns, mask=known, other=float("-inf")).to(wide)[None, :]


@triton.jit
def _peak_and_sum(
    features,
    places,
    live,
    masses,
    num_features,
    features_m,
    block_n: tl.constexpr,
    block_m: tl.constexpr,
    wide: tl.constexpr,
):
    """The largest exponent of each row, and the sum of exponentials relative to it."""
    peak = tl.full([block_n], float("-inf"), wide)
    total = tl.zeros([block_n], wide)
    for start in range(0, num_features, block_m):
        exponents = _exponents(features, places, live, masses, start, num_features, features_m, block_m, wide)
        higher = tl.maximum(peak, tl.max(exponents, 1))
        total = total * tl.exp(peak - higher) + tl.sum(tl.exp(exponents - higher[:, None]), 1)
        peak = higher
    return peak, total


@triton.jit
def _attend_kernel(
    features,
    log_mass,
    mean,
    noise_free,
    outputs,
    log_normalizers,
    sums,
    num_nodes,
    heads,
    draws,
    num_features,
    channels,
    features_n,
    features_h,
    features_m,
    block_n: tl.constexpr,
    block_m: tl.constexpr,
    block_c: tl.constexpr,
    wide: tl.constexpr,
    precision: tl.constexpr,
):
    """What a block of queries gets, [n, c], from all heads and draws."""
    rows = tl.program_id(0).to(tl.int64) * block_n + tl.arange(0, block_n)
    columns = tl.arange(0, block_c)
    live, inside = rows < num_nodes, columns < channels
    made = tl.zeros([block_n, block_c], wide)
    size = tl.cast(heads, tl.int64) * (draws + 1) * num_nodes
    for head in range(heads):
        places = rows * features_n + head * features_h
        for draw in range(draws):
            own = (head * draws + draw) * num_features
            peak, total = _peak_and_sum(
                features, places, live, log_mass + own, num_features, features_m, block_n, block_m, wide
            )
            for start in range(0, num_features, block_m):
                exponents = _exponents(
                    features, places, live, log_mass + own, start, num_features, features_m, block_m, wide
                )
                weights = tl.exp(exponents - peak[:, None]) / total[:, None]
                known = start + tl.arange(0, block_m)
                averages = mean + (own + known)[:, None] * channels + columns[None, :]
                averages = tl.load(averages, mask=(known < num_features)[:, None] & inside[None, :], other=0).to(wide)
                made = tl.dot(weights, averages, made, input_precision=precision, out_dtype=wide)
            ours = tl.cast(head * (draws + 1) + draw, tl.int64) * num_nodes + rows
            tl.store(sums + ours, peak, mask=live)
            tl.store(sums + size + ours, total, mask=live)
        masses = noise_free + head * num_features
        free_peak, free = _peak_and_sum(
            features, places, live, masses, num_features, features_m, block_n, block_m, wide
        )
        free_at = tl.cast(head * (draws + 1) + draws, tl.int64) * num_nodes + rows
        tl.store(sums + free_at, free_peak, mask=live)
        tl.store(sums + size + free_at, free, mask=live)
        tl.store(log_normalizers + rows * heads + head, free_peak + tl.log(free), mask=live)
    places = rows[:, None] * channels + columns[None, :]
    tl.store(outputs + places, made / draws, mask=live[:, None] & inside[None, :])


@triton.jit
def _attend_backward_kernel(
    features,
    log_mass,
    mean,
    noise_free,
    sums,
    grad,
    grad_log_normalizers,
    grad_features,
    wholes,
    num_nodes,
    draws,
    num_features,
    channels,
    features_n,
    features_h,
    features_m,
    block_n: tl.constexpr,
    block_m: tl.constexpr,
    block_c: tl.constexpr,
    block_k: tl.constexpr,
    wide: tl.constexpr,
    precision: tl.constexpr,
):
    """The gradient of a block of queries' features in a head, and the whole pull of each draw, [k + 1, n].

    A softmax's gradient is its pull less its own share of the whole pull; a log normalizer's is its share. So the
    features are gone through twice: the pulls, and then, when these are whole, the shares.
    """
    rows = tl.program_id(0).to(tl.int64) * block_n + tl.arange(0, block_n)
    head, heads = tl.program_id(1), tl.num_programs(1)
    columns, numbers = tl.arange(0, block_c), tl.arange(0, block_k)
    live, inside = rows < num_nodes, columns < channels
    grad_at = rows[:, None] * channels + columns[None, :]
    pull = tl.load(grad + grad_at, mask=live[:, None] & inside[None, :], other=0).to(wide) / draws
    places = rows * features_n + head * features_h
    own_rows = (rows * heads + head) * num_features
    size = tl.cast(heads, tl.int64) * (draws + 1) * num_nodes
    first = tl.cast(head * (draws + 1), tl.int64) * num_nodes + rows
    free_pull = tl.load(grad_log_normalizers + rows * heads + head, mask=live, other=0).to(wide)
    whole = tl.where(numbers[None, :] == draws, -free_pull[:, None], tl.zeros([block_n, block_k], wide))
    for start in range(0, num_features, block_m):
        known = start + tl.arange(0, block_m)
        mask = (known < num_features)[None, :] & live[:, None]
        total = tl.zeros([block_n, block_m], wide)
        for draw in range(draws):
            own = (head * draws + draw) * num_features
            exponents = _exponents(
                features, places, live, log_mass + own, start, num_features, features_m, block_m, wide
            )
            peak = tl.load(sums + first + tl.cast(draw, tl.int64) * num_nodes, mask=live, other=float("inf"))
            mass = tl.load(sums + size + first + tl.cast(draw, tl.int64) * num_nodes, mask=live, other=1)
            weights = tl.exp(exponents - peak[:, None]) / mass[:, None]
            averages = mean + (own + known)[None, :] * channels + columns[:, None]
            averages = tl.load(averages, mask=(known < num_features)[None, :] & inside[:, None], other=0).to(wide)
            pulled = weights * tl.dot(pull, averages, input_precision=precision, out_dtype=wide)
            total += pulled
            whole += tl.where(numbers[None, :] == draw, tl.sum(pulled, 1)[:, None], 0)
        tl.store(grad_features + own_rows[:, None] + known[None, :], total, mask=mask)
    whole_at = first[:, None] + numbers[None, :].to(tl.int64) * num_nodes
    tl.store(wholes + whole_at, whole, mask=live[:, None] & (numbers <= draws)[None, :])
    tl.debug_barrier()
    for start in range(0, num_features, block_m):
        known = start + tl.arange(0, block_m)
        mask = (known < num_features)[None, :] & live[:, None]
        grad_places = grad_features + own_rows[:, None] + known[None, :]
        total = tl.load(grad_places, mask=mask, other=0).to(wide)
        for draw in range(draws + 1):
            masses = log_mass + (head * draws + draw) * num_features
            if draw == draws:
                masses = noise_free + head * num_features
            exponents = _exponents(features, places, live, masses, start, num_features, features_m, block_m, wide)
            peak = tl.load(sums + first + tl.cast(draw, tl.int64) * num_nodes, mask=live, other=float("inf"))
            mass = tl.load(sums + size + first + tl.cast(draw, tl.int64) * num_nodes, mask=live, other=1)
            own_whole = tl.sum(tl.where(numbers[None, :] == draw, whole, 0), 1)
            total -= tl.exp(exponents - peak[:, None]) * (own_whole / mass)[:, None]
        tl.store(grad_places, total, mask=mask)


@triton.jit
def _share_kernel(
    features,
    log_mass,
    noise_free,
    sums,
    wholes,
    grad,
    shares,
    partial_means,
    num_nodes,
    heads,
    draws,
    num_features,
    channels,
    part_rows,
    features_n,
    features_h,
    features_m,
    block_n: tl.constexpr,
    block_m: tl.constexpr,
    block_c: tl.constexpr,
    wide: tl.constexpr,
    precision: tl.constexpr,
):
    """Of a part of the queries, a head and a draw: Σ weight grad [m, c], and Σ weight whole [m]."""
    tiles_c = tl.cdiv(channels, block_c)
    tiles = tiles_c * tl.cdiv(num_features, block_m)
    draw, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    head, part = tl.program_id(1), tl.program_id(2).to(tl.int64)
    known = tile // tiles_c * block_m + tl.arange(0, block_m)
    columns = tile % tiles_c * block_c + tl.arange(0, block_c)
    there, inside = known < num_features, columns < channels
    masses = log_mass + (head * draws + draw) * num_features
    if draw == draws:
        masses = noise_free + head * num_features
    masses = tl.load(masses + known, mask=there, other=float("-inf")).to(wide)
    first = tl.cast(head * (draws + 1) + draw, tl.int64) * num_nodes
    size = tl.cast(heads, tl.int64) * (draws + 1) * num_nodes
    share = tl.zeros([block_m], wide)
    total = tl.zeros([block_m, block_c], wide)
    for start in range(0, tl.minimum(part_rows, num_nodes - part * part_rows), block_n):
        rows = part * part_rows + start + tl.arange(0, block_n)
        live = rows < num_nodes
        met = features + rows[None, :] * features_n + head * features_h + known[:, None] * features_m
        exponents = tl.load(met, mask=live[None, :] & there[:, None], other=0).to(wide) + masses[:, None]
        peak = tl.load(sums + first + rows, mask=live, other=float("inf"))
        mass = tl.load(sums + size + first + rows, mask=live, other=1)
        whole = tl.load(wholes + first + rows, mask=live, other=0)
        weights = tl.exp(exponents - peak[None, :]) / mass[None, :]
        share += tl.sum(weights * whole[None, :], 1)
        if draw < draws:
            grad_at = rows[:, None] * channels + columns[None, :]
            pull = tl.load(grad + grad_at, mask=live[:, None] & inside[None, :], other=0).to(wide)
            total = tl.dot(weights, pull, total, input_precision=precision, out_dtype=wide)
    if tile % tiles_c == 0:
        own = ((part * heads + head) * (draws + 1) + draw) * num_features + known
        tl.store(shares + own, share, mask=there)
    if draw < draws:
        means_at = (((part * heads + head) * draws + draw) * num_features + known[:, None]) * channels + columns[
            None, :
        ]
        tl.store(partial_means + means_at, total / draws, mask=there[:, None] & inside[None, :])


@triton.jit
def _add_parts_kernel(
    shares,
    partial_means,
    mean,
    grad_log_mass,
    grad_mean,
    grad_noise_free,
    num_parts,
    draws,
    num_features,
    channels,
    block_p: tl.constexpr,
    block_m: tl.constexpr,
    block_c: tl.constexpr,
    wide: tl.constexpr,
):
    """Adds up the parts, in their order; a log mass has the pull of its mean, less the share."""
    known, draw, head = tl.program_id(0) * block_m + tl.arange(0, block_m), tl.program_id(1), tl.program_id(2)
    heads, columns = tl.num_programs(2), tl.arange(0, block_c)
    there, inside = known < num_features, columns < channels
    share = tl.zeros([block_m], wide)
    total = tl.zeros([block_m, block_c], wide)
    for start in range(0, num_parts, block_p):
        index = start + tl.arange(0, block_p).to(tl.int64)
        mask = (index < num_parts)[:, None] & there[None, :]
        own = ((index * heads + head) * (draws + 1) + draw)[:, None] * num_features + known[None, :]
        share += tl.sum(tl.load(shares + own, mask=mask, other=0), 0)
        if draw < draws:
            rows = ((index * heads + head) * draws + draw)[:, None] * num_features + known[None, :]
            means_at = rows[:, :, None] * channels + columns[None, None, :]
            cells = mask[:, :, None] & inside[None, None, :]
            total += tl.sum(tl.load(partial_means + means_at, mask=cells, other=0), 0)
    if draw < draws:
        rows_at = (head * draws + draw) * num_features + known
        cells_at = rows_at[:, None] * channels + columns[None, :]
        cells_mask = there[:, None] & inside[None, :]
        average = tl.load(mean + cells_at, mask=cells_mask, other=0).to(wide)
        tl.store(grad_mean + cells_at, total, mask=cells_mask)
        tl.store(grad_log_mass + rows_at, tl.sum(average * total, 1) - share, mask=there)
    else:
        tl.store(grad_noise_free + head * num_features + known, -share, mask=there)
