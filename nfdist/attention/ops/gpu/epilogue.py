"""The epilogue of a layer as few whole operations; the dropout mask, a byte an entry, is kept for the backward pass."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.ops.definition import NORM_EPSILON
from nfdist.attention.ops.gpu.noise import keep_mask


def add_norm(
    *terms: Tensor,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    elu: bool = False,
    dropout: tuple[int, Tensor, float] | None = None,
) -> Tensor:
    """See `definition.add_norm`."""
    key, node_ids, drop = dropout or (0, terms[0], 0.0)
    keep, factor = keep_mask(key, node_ids, terms[0].shape[1], drop) if dropout else (None, 1.0)
    out: Tensor = _AddNorm.apply(elu, keep, factor, scale, shift, *terms)
    return out


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        elu: bool,
        keep: Tensor | None,
        factor: float,
        scale: Tensor | None,
        shift: Tensor | None,
        *terms: Tensor,
    ) -> Tensor:
        sums = terms[0] + terms[1] if len(terms) > 1 else terms[0]
        for term in terms[2:]:
            sums += term
        made, mean, rstd = sums, None, None
        if scale is not None:
            made, mean, rstd = torch.native_layer_norm(sums, list(scale.shape), scale, shift, NORM_EPSILON)
        if elu:
            made = torch.nn.functional.elu(made)
        if keep is not None:
            made = _drop(made, keep, factor)
        ctx.save_for_backward(None if scale is None else sums, mean, rstd, scale, shift, keep, made if elu else None)
        ctx.factor, ctx.num_terms = factor, len(terms)
        return made.view_as(made)  # which may be a term

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        sums, mean, rstd, scale, shift, keep, made = ctx.saved_tensors
        by_scale = by_shift = None
        if keep is not None:
            grad = _drop(grad, keep, ctx.factor)
        if made is not None:  # what was dropped has no slope to find
            made = made / ctx.factor if keep is not None else made
            grad = torch.ops.aten.elu_backward(grad, 1, 1, 1, True, made)
        if scale is not None:
            grad, by_scale, by_shift = torch.ops.aten.native_layer_norm_backward(
                grad, sums, scale.shape, mean, rstd, scale, shift, [True, True, True]
            )
        return None, None, None, by_scale, by_shift, *[grad] * ctx.num_terms


def _drop(rows: Tensor, keep: Tensor, factor: float) -> Tensor:
    """rows x keep x factor, which is what torch's own dropout does in its backward pass, in one launch."""
    dropped: Tensor = torch.ops.aten.native_dropout_backward(rows, keep, factor)
    return dropped
