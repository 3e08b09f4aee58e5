"""The epilogue of a layer, one pass over the rows in chunks that stay in cache: docs/numerics.md#chunks.

The backward pass draws dropout masks again instead of keeping them.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.ops.chunks import chunks
from nfdist.attention.ops.cpu.noise import keep_mask
from nfdist.attention.ops.definition import NORM_EPSILON


def add_norm(
    *terms: Tensor,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    elu: bool = False,
    dropout: tuple[int, Tensor, float] | None = None,
) -> Tensor:
    """See `definition.add_norm`."""
    out: Tensor = _AddNorm.apply(elu, dropout, torch.is_grad_enabled(), scale, shift, *terms)
    return out


class _AddNorm(torch.autograd.Function):
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
        out = torch.empty_like(terms[0])
        sums = torch.empty_like(out) if recorded and len(terms) > 1 else terms[0]
        statistics = out.new_empty(2, len(out), 1)
        for rows in chunks(len(out), 2 * out.shape[1], out.device):
            total = sums[rows]
            if len(terms) > 1:
                torch.add(terms[0][rows], terms[1][rows], out=total)
            for tensor in terms[2:]:
                total += tensor[rows]
            if scale is not None:
                total, mean, rstd = torch.native_layer_norm(total, list(scale.shape), scale, shift, NORM_EPSILON)
                statistics[0, rows], statistics[1, rows] = mean, rstd
            if elu:
                _elu(total, out[rows])
            else:
                out[rows] = total
            if dropout is not None:
                keep, factor = _mask(dropout, rows, out)
                out[rows].mul_(keep).mul_(factor)
        ctx.save_for_backward(scale, shift, None if scale is None else sums, statistics, out)
        ctx.elu, ctx.dropout, ctx.num_terms = elu, dropout, len(terms)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scale, shift, sums, statistics, out = ctx.saved_tensors
        grad_sums = torch.empty_like(out)
        grad_scale, grad_shift = (None, None) if scale is None else scale.new_zeros(2, *scale.shape)
        for rows in chunks(len(out), 2 * out.shape[1], out.device):
            pull, made = grad[rows], out[rows]
            if ctx.dropout is not None:
                keep, factor = _mask(ctx.dropout, rows, out)
                pull, made = (pull * keep).mul_(factor), made / factor
            if ctx.elu:  # the slope of ELU is 1, plus its output where that is negative
                pull = made.clamp(max=0).add_(1).mul_(pull)
            if scale is not None:
                pull, by_scale, by_shift = torch.ops.aten.native_layer_norm_backward(
                    pull, sums[rows], scale.shape, *statistics[:, rows], scale, shift, [True, True, True]
                )
                grad_scale += by_scale
                grad_shift += by_shift
            grad_sums[rows] = pull
        return None, None, None, grad_scale, grad_shift, *[grad_sums] * ctx.num_terms


def _mask(dropout: tuple[int, Tensor, float], rows: slice, like: Tensor) -> tuple[Tensor, float]:
    key, node_ids, drop = dropout
    return keep_mask(key, node_ids[rows], like.shape[1], drop)


def _elu(rows: Tensor, out: Tensor) -> None:
    """ELU of rows into out, max(x, exp(min(x, 0)) - 1); torch's own takes twice as long on a CPU."""
    torch.maximum(rows, torch.clamp(rows, max=0, out=out).exp_().sub_(1), out=out)
