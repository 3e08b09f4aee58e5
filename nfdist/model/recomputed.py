"""Work whose inputs alone are kept, and which is done again in the backward pass: time for memory.

Randomness is a function of node ids, so that it is the same work; collectives are made again as well, by all ranks.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

ROWS_AT_ONCE = 1 << 16  # what is made of these rows, many times as large as they are, is there at once

Work = Callable[..., tuple[Tensor, ...]]
Parameters = Sequence[nn.Parameter]


def recomputed(work: Work, inputs: Sequence[Tensor], parameters: Parameters) -> tuple[Tensor, ...]:
    """What some work makes of inputs and by parameters that it knows; both have their gradients."""
    made: tuple[Tensor, ...] = _Recomputed.apply(work, len(inputs), *inputs, *parameters)
    return made


def recomputed_by_rows(
    work: Work,
    num_rows: int,
    rowwise: Sequence[Tensor],
    shared: Sequence[Tensor],
    parameters: Parameters,
    rows_at_once: int | None = None,
) -> tuple[Tensor, ...]:
    """Results [num_rows, ...] of work(rows, *those rows of each `rowwise` tensor, *shared), some rows at a time."""
    sizes = num_rows, len(rowwise), len(shared)
    at_once = rows_at_once or ROWS_AT_ONCE
    made: tuple[Tensor, ...] = _RecomputedByRows.apply(work, at_once, sizes, *rowwise, *shared, *parameters)
    return made


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: Work, num_inputs: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.work, ctx.parameters = work, tensors[num_inputs:]
        ctx.save_for_backward(*tensors[:num_inputs])
        return work(*tensors[:num_inputs])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        leaves = [_leaf(tensor) for tensor in ctx.saved_tensors]
        with torch.enable_grad():
            made = ctx.work(*leaves)
        return None, None, *_gradients(made, (*leaves, *ctx.parameters), grads)


class _RecomputedByRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, work: Work, rows_at_once: int, sizes: tuple[int, int, int], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.work, ctx.rows_at_once, ctx.sizes = work, rows_at_once, sizes
        num_rows, num_rowwise, num_shared = sizes
        ctx.parameters = tensors[num_rowwise + num_shared :]
        kept = tensors[: num_rowwise + num_shared]
        ctx.save_for_backward(*kept)
        outs: list[Tensor] = []
        for rows in _chunks(num_rows, rows_at_once):
            made = work(rows, *(tensor[rows] for tensor in kept[:num_rowwise]), *kept[num_rowwise:])
            outs = outs or [part.new_empty(num_rows, *part.shape[1:]) for part in made]
            for out, part in zip(outs, made, strict=True):
                out[rows] = part
        return tuple(outs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        num_rows, num_rowwise, _ = ctx.sizes
        rowwise, shared = ctx.saved_tensors[:num_rowwise], [_leaf(tensor) for tensor in ctx.saved_tensors[num_rowwise:]]
        by_row = [torch.empty_like(tensor) for tensor in rowwise]
        sums: list[Tensor | None] = [None] * (len(shared) + len(ctx.parameters))
        for rows in _chunks(num_rows, ctx.rows_at_once):
            leaves = [_leaf(tensor[rows]) for tensor in rowwise]
            with torch.enable_grad():
                made = ctx.work(rows, *leaves, *shared)
            found = _gradients(made, (*leaves, *shared, *ctx.parameters), [grad[rows] for grad in grads])
            for out, own, leaf in zip(by_row, found, leaves, strict=False):
                out[rows] = torch.zeros_like(leaf) if own is None else own
            for index, more in enumerate(found[len(leaves) :]):
                so_far = sums[index]
                sums[index] = so_far if more is None else more if so_far is None else so_far + more
        return None, None, None, *by_row, *sums


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(tensor.is_floating_point())


def _chunks(num_rows: int, rows_at_once: int) -> Iterator[slice]:
    """Even slices; of no rows one, so that there is a result."""
    count = max(1, -(-num_rows // rows_at_once))
    return (slice(num_rows * chunk // count, num_rows * (chunk + 1) // count) for chunk in range(count))


def _gradients(made: Sequence[Tensor], inputs: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """Those of inputs, None where nothing depends on one."""
    pairs = [(one, grad) for one, grad in zip(made, grads, strict=True) if one.requires_grad]
    found: tuple[Tensor | None, ...] = torch.autograd.grad(
        [one for one, _ in pairs], inputs, [grad for _, grad in pairs], allow_unused=True
    )
    return found
