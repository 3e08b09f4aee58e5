"""The epilogue of a layer in one pass over the rows; the dropout mask is hashed on the spot."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.ops.definition import NORM_EPSILON
from nfdist.attention.ops.triton_kernels.launch import arithmetic, count, launch, parts
from nfdist.attention.ops.triton_kernels.noise import keep_channels

_MOST_TERMS = 3


def add_norm(
    *terms: Tensor,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    elu: bool = False,
    dropout: tuple[int, Tensor, float] | None = None,
) -> Tensor:
    """See `definition.add_norm`."""
    while len(terms) > _MOST_TERMS:
        terms = (terms[0] + terms[1], *terms[2:])
    out: Tensor = _AddNorm.apply(elu, dropout, torch.is_grad_enabled(), scale, shift, *terms)
    return out


class _AddNorm(torch.autograd.Function):
    """Keeps the sums; all that was made of them is made again."""

    @staticmethod
    def forward(
        ctx: Any,
        elu: bool,
        dropout: tuple[int, Tensor, float] | None,
        recorded: bool,
        scale: Tensor | None,
        shift: Tensor | None,
        *terms: Tensor,
    ) -> Tensor:
        terms = tuple(term.contiguous() for term in terms)
        out = torch.empty_like(terms[0])
        sums = torch.empty_like(out) if recorded and len(terms) > 1 else None
        key, node_ids, dropped = _dropped(dropout)
        ctx.constants = {
            "epsilon": NORM_EPSILON,
            "dropped": dropped,
            "elu": elu,
            **_sizes(out.shape[1]),
            "wide": arithmetic(out)["wide"],
        }
        block_rows = ctx.constants["block_n"]
        arguments = (*terms, *[None] * (_MOST_TERMS - len(terms)), scale, shift, node_ids, sums, out)
        numbers = (len(out), out.shape[1], key)
        launch(_add_norm_kernel, (count(len(out), block_rows),), *arguments, *numbers, **ctx.constants)
        ctx.save_for_backward(terms[0] if sums is None else sums, scale, shift, node_ids)
        ctx.numbers, ctx.num_terms = numbers, len(terms)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        sums, scale, shift, node_ids = ctx.saved_tensors
        grad, grad_sums = grad.contiguous(), torch.empty_like(sums)
        num_parts, part_rows = parts(len(sums), 1, ctx.constants["block_n"])
        partial = None if scale is None else scale.new_empty(2, num_parts, len(scale))
        arguments = (sums, scale, shift, node_ids, grad, grad_sums, partial, *ctx.numbers, part_rows)
        launch(_add_norm_backward_kernel, (num_parts,), *arguments, **ctx.constants)
        by_scale, by_shift = (None, None) if partial is None else partial.sum(1)
        return None, None, None, by_scale, by_shift, *[grad_sums] * ctx.num_terms


def _dropped(dropout: tuple[int, Tensor, float] | None) -> tuple[int, Tensor | None, int]:
    """The key, the node ids and how many of 65,536 are dropped."""
    return (0, None, 0) if dropout is None else (dropout[0], dropout[1], round(dropout[2] * 65536))


def _sizes(channels: int) -> dict[str, int]:
    block_c = max(16, triton.next_power_of_2(channels))
    return {"block_n": max(1, min(32, 2048 // block_c)), "block_c": block_c}


@triton.jit
def _normed(total, columns, channels, scale, shift, epsilon: tl.constexpr, wide: tl.constexpr):
    """(Σ - mean) / deviation, 1 / deviation, and what norm makes of rows."""
    inside = (columns < channels)[None, :]
    average = tl.sum(tl.where(inside, total, 0), 1) / channels
    centered = tl.where(inside, total - average[:, None], 0)
    inverse = 1 / tl.sqrt(tl.sum(centered * centered, 1) / channels + epsilon)
    relative = centered * inverse[:, None]
    by = tl.load(scale + columns, mask=columns < channels, other=0).to(wide)
    plus = tl.load(shift + columns, mask=columns < channels, other=0).to(wide)
    return relative, inverse, relative * by[None, :] + plus[None, :], by


@triton.jit(do_not_specialize=["key"])
def _add_norm_kernel(
    term,
    second,
    third,
    scale,
    shift,
    node_ids,
    sums,
    out,
    num_nodes,
    channels,
    key,
    epsilon: tl.constexpr,
    dropped: tl.constexpr,
    elu: tl.constexpr,
    block_n: tl.constexpr,
    block_c: tl.constexpr,
    wide: tl.constexpr,
):
    """A block of rows."""
    rows, columns = tl.program_id(0).to(tl.int64) * block_n + tl.arange(0, block_n), tl.arange(0, block_c)
    places = rows[:, None] * channels + columns[None, :]
    live = (rows < num_nodes)[:, None] & (columns < channels)[None, :]
    total = tl.load(term + places, mask=live, other=0).to(wide)
    if second is not None:
        total += tl.load(second + places, mask=live, other=0).to(wide)
    if third is not None:
        total += tl.load(third + places, mask=live, other=0).to(wide)
    if sums is not None:
        tl.store(sums + places, total, mask=live)
    if scale is not None:
        _relative, _inverse, made, _by = _normed(total, columns, channels, scale, shift, epsilon, wide)
    else:
        made = total
    if elu:
        made = tl.where(made > 0, made, tl.exp(tl.minimum(made, 0)) - 1)
    if node_ids is not None:
        ids = tl.load(node_ids + rows, mask=rows < num_nodes, other=0)
        made = tl.where(keep_channels(key, ids, 0, dropped, block_c // 4), made * (65536 / (65536 - dropped)), 0)
    tl.store(out + places, made, mask=live)


@triton.jit(do_not_specialize=["key"])
def _add_norm_backward_kernel(
    sums,
    scale,
    shift,
    node_ids,
    grad,
    grad_sums,
    partial,
    num_nodes,
    channels,
    key,
    part_rows,
    epsilon: tl.constexpr,
    dropped: tl.constexpr,
    elu: tl.constexpr,
    block_n: tl.constexpr,
    block_c: tl.constexpr,
    wide: tl.constexpr,
):
    """The gradient of a part of the rows, and the part's sums for scale and shift."""
    columns, part = tl.arange(0, block_c), tl.program_id(0).to(tl.int64)
    by_scale = tl.zeros([block_c], wide)
    by_shift = tl.zeros([block_c], wide)
    for start in range(0, part_rows, block_n):
        rows = part * part_rows + start + tl.arange(0, block_n)
        places = rows[:, None] * channels + columns[None, :]
        live = (rows < num_nodes)[:, None] & (columns < channels)[None, :]
        total = tl.load(sums + places, mask=live, other=0).to(wide)
        pull = tl.load(grad + places, mask=live, other=0).to(wide)
        if scale is not None:
            relative, inverse, made, by = _normed(total, columns, channels, scale, shift, epsilon, wide)
        else:
            made = total
        if node_ids is not None:
            ids = tl.load(node_ids + rows, mask=rows < num_nodes, other=0)
            pull = tl.where(keep_channels(key, ids, 0, dropped, block_c // 4), pull * (65536 / (65536 - dropped)), 0)
        if elu:
            pull *= tl.where(made > 0, 1, tl.exp(tl.minimum(made, 0)))
        if scale is not None:
            by_scale += tl.sum(relative * pull, 0)
            by_shift += tl.sum(pull, 0)
            pull *= by[None, :]
            pull -= (tl.sum(pull, 1) / channels)[:, None] + relative * (tl.sum(pull * relative, 1) / channels)[:, None]
            pull *= inverse[:, None]
        tl.store(grad_sums + places, pull, mask=live)
    if scale is not None:
        own = part * channels + columns
        tl.store(partial + own, by_scale, mask=columns < channels)
        size = tl.num_programs(0).to(tl.int64) * channels
        tl.store(partial + size + own, by_shift, mask=columns < channels)
