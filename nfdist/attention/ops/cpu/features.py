"""Features of queries and keys, in chunks; the backward pass projects again instead of keeping what it can."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.ops.chunks import by_head, chunks, rows_last
from nfdist.attention.ops.key_features import KeyLogs, KeyMap


def _forward(keys: Tensor, directions: Tensor, half_square: float, out: Tensor | None = None) -> Tensor:
    """w.x - |x|^2 / 2 - log(m) / 2, lying in memory as [h, m, n]; `@` would take the nodes one by one."""
    into = None if out is None else out.movedim(0, -1)
    projected = torch.bmm(directions.expand(keys.shape[1], -1, -1), keys.permute(1, 2, 0), out=into).movedim(-1, 0)
    squares = keys.square().movedim(0, -1).sum(1, keepdim=True).movedim(-1, 0)
    return projected.sub_(squares.mul(half_square).add(math.log(len(directions)) / 2))


def _backward(keys: Tensor, grad: Tensor, directions: Tensor, half_square: float) -> Tensor:
    grad = grad.movedim(0, -1)
    projected = torch.bmm(directions.t().expand(len(grad), -1, -1), grad)
    projected.addcmul_(grad.sum(1, keepdim=True), keys.movedim(0, -1), value=-2 * half_square)
    return projected.movedim(-1, 0)


class _Project(torch.autograd.Function):
    """Neither pass holds the keys of all rows."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        query_weight: Tensor,
        query_bias: Tensor,
        key_weight: Tensor,
        key_bias: Tensor,
        directions: Tensor,
        half_square: float,
    ) -> tuple[Tensor, Tensor]:
        num_features, channels = directions.shape
        shape = (len(hidden), len(key_weight) // channels, num_features)
        queries, logs = (rows_last(*shape, like=hidden) for _ in range(2))
        for rows in chunks(len(hidden), 2 * len(key_weight), hidden.device):
            torch.addmm(query_bias, hidden[rows], query_weight.t(), out=queries[rows].flatten(1))
            _forward(by_head(hidden[rows], key_weight, key_bias, channels), directions, half_square, out=logs[rows])
        ctx.save_for_backward(hidden, query_weight, key_weight, key_bias, directions)
        ctx.half_square = half_square
        return queries, logs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_queries: Tensor, grad_logs: Tensor) -> tuple[Tensor | None, ...]:
        hidden, query_weight, key_weight, key_bias, directions = ctx.saved_tensors
        grad_hidden = torch.empty_like(hidden)
        grads = [torch.zeros_like(weight) for weight in (query_weight, query_weight[:, 0], key_weight, key_bias)]
        for rows in chunks(len(hidden), 2 * len(key_weight), hidden.device):
            keys = by_head(hidden[rows], key_weight, key_bias, directions.shape[1])
            grad_query = grad_queries[rows].flatten(1)
            grad_key = _backward(keys, grad_logs[rows], directions, ctx.half_square).flatten(1)
            torch.mm(grad_query, query_weight, out=grad_hidden[rows]).addmm_(grad_key, key_weight)
            for index, grad in ((0, grad_query), (2, grad_key)):
                grads[index].addmm_(grad.t(), hidden[rows])
                grads[index + 1] += grad.sum(0)
        return grad_hidden, *grads, None, None


# See `definition`, which has their types.
key_logs = partial(KeyLogs.apply, KeyMap(_forward, _backward))
project = _Project.apply
