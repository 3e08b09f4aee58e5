"""Epilogue: how a sum becomes the next hidden state, one pass over the rows in chunks that stay in cache.

The backward pass draws dropout masks again instead of keeping them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nfdist.attention import ops
from nfdist.attention.ops.chunks import chunks


@dataclass(frozen=True)
class Dropout:
    """Which mask: a function of the key, the channel and the node's id, so it can be drawn again instead of kept."""

    rate: float
    key: int
    node_ids: Tensor

    @property
    def factor(self) -> float:
        """What keeps the mean: rates are multiples of 2^-16."""
        return 65536 / (65536 - round(self.rate * 65536))

    def mask(self, rows: slice, like: Tensor) -> tuple[Tensor, float]:
        return ops.keep_mask(self.key, self.node_ids[rows], like.shape[1], self.rate)


@dataclass(frozen=True)
class Epilogue:
    """What makes a hidden state of a sum: a norm, an activation and dropout, each optional."""

    norm: nn.LayerNorm | None
    elu: bool
    dropout: Dropout | None


def add_norm(terms: Sequence[Tensor], epilogue: Epilogue) -> Tensor:
    """dropout(elu(norm(Σ terms))), [n, c]. Where no gradient is wanted, the first term is used up by the sum."""
    scale, shift = (None, None) if epilogue.norm is None else (epilogue.norm.weight, epilogue.norm.bias)
    out: Tensor = _AddNorm.apply(epilogue, torch.is_grad_enabled(), scale, shift, *terms)
    return out


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, epilogue: Epilogue, recorded: bool, scale: Tensor | None, shift: Tensor | None, *terms: Tensor
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
                total, mean, rstd = torch.native_layer_norm(total, list(scale.shape), scale, shift, 1e-5)
                statistics[0, rows], statistics[1, rows] = mean, rstd
            if epilogue.elu:
                _elu(total, out[rows])
            else:
                out[rows] = total
            if epilogue.dropout is not None:
                keep, factor = epilogue.dropout.mask(rows, out)
                out[rows].mul_(keep).mul_(factor)
        ctx.save_for_backward(scale, shift, None if scale is None else sums, statistics, out)
        ctx.epilogue, ctx.num_terms = epilogue, len(terms)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scale, shift, sums, statistics, out = ctx.saved_tensors
        epilogue: Epilogue = ctx.epilogue
        grad_sums = torch.empty_like(out)
        grad_scale, grad_shift = (None, None) if scale is None else scale.new_zeros(2, *scale.shape)
        for rows in chunks(len(out), 2 * out.shape[1], out.device):
            pull, made = grad[rows], out[rows]
            if epilogue.dropout is not None:
                keep, factor = epilogue.dropout.mask(rows, out)
                pull, made = (pull * keep).mul_(factor), made / factor
            if epilogue.elu:  # the slope of ELU is 1, plus its output where that is negative
                pull = made.clamp(max=0).add_(1).mul_(pull)
            if scale is not None:
                pull, by_scale, by_shift = torch.ops.aten.native_layer_norm_backward(
                    pull, sums[rows], scale.shape, *statistics[:, rows], scale, shift, [True, True, True]
                )
                grad_scale += by_scale
                grad_shift += by_shift
            grad_sums[rows] = pull
        return None, None, grad_scale, grad_shift, *[grad_sums] * ctx.num_terms


def _elu(rows: Tensor, out: Tensor) -> None:
    """ELU of rows into out, max(x, exp(min(x, 0)) - 1); torch's own takes twice as long on a CPU."""
    torch.maximum(rows, torch.clamp(rows, max=0, out=out).exp_().sub_(1), out=out)
