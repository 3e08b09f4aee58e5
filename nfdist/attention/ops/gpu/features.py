"""Features of queries and keys as whole matrix products; the backward pass makes the keys again."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def _forward(keys: Tensor, directions: Tensor, half_square: float) -> Tensor:
    """w.x - |x|^2 / 2 - log(m) / 2, [n, h, m]."""
    constant = directions.new_full((len(directions),), -math.log(len(directions)) / 2)
    projected = torch.addmm(constant, keys.flatten(0, 1), directions.t())
    norms = torch.linalg.vector_norm(keys, dim=2, keepdim=True)
    return projected.view(*keys.shape[:2], len(directions)).addcmul_(norms, norms, value=-half_square)


def _backward(keys: Tensor, grad: Tensor, directions: Tensor, half_square: float) -> Tensor:
    grad_keys = torch.mm(grad.flatten(0, 1), directions).view_as(keys)
    return grad_keys.addcmul_(grad.sum(2, keepdim=True), keys, value=-2 * half_square)


class _KeyLogs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Tensor, directions: Tensor, half_square: float) -> Tensor:
        ctx.save_for_backward(keys, directions)
        ctx.half_square = half_square
        return _forward(keys, directions, half_square)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        keys, directions = ctx.saved_tensors
        return _backward(keys, grad, directions, ctx.half_square), None, None


class _Project(torch.autograd.Function):
    """Keeps the hidden states, but neither queries nor keys."""

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
        ctx.save_for_backward(hidden, query_weight, key_weight, key_bias, directions)
        ctx.half_square = half_square
        num_features, channels = directions.shape
        queries = torch.addmm(query_bias, hidden, query_weight.t()).unflatten(1, (-1, num_features))
        keys = torch.addmm(key_bias, hidden, key_weight.t()).unflatten(1, (-1, channels))
        return queries, _forward(keys, directions, half_square)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_queries: Tensor, grad_logs: Tensor) -> tuple[Tensor | None, ...]:
        hidden, query_weight, key_weight, key_bias, directions = ctx.saved_tensors
        keys = torch.addmm(key_bias, hidden, key_weight.t()).unflatten(1, (-1, directions.shape[1]))
        grad_query = grad_queries.flatten(1)
        grad_key = _backward(keys, grad_logs, directions, ctx.half_square).flatten(1)
        grad_hidden = torch.mm(grad_query, query_weight).addmm_(grad_key, key_weight)
        by_query, by_key = ((torch.mm(grad.t(), hidden), grad.sum(0)) for grad in (grad_query, grad_key))
        return grad_hidden, *by_query, *by_key, None, None


# See `definition`, which has their types.
key_logs = _KeyLogs.apply
project = _Project.apply
