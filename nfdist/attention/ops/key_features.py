"""Features of keys and queries with their gradients, by any map of keys; inputs are all that is kept."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class KeyMap(NamedTuple):
    """The log features [n, h, m] of keys [n, h, d], and the gradient of keys, given that of their log features.

    Called with (keys, directions, half_square) and (keys, gradient, directions, half_square): `definition.key_logs`.
    """

    forward: Callable[[Tensor, Tensor, float], Tensor]
    backward: Callable[[Tensor, Tensor, Tensor, float], Tensor]


class KeyLogs(torch.autograd.Function):
    """`definition.key_logs`, by a map."""

    @staticmethod
    def forward(ctx: Any, key_map: KeyMap, keys: Tensor, directions: Tensor, half_square: float) -> Tensor:
        ctx.save_for_backward(keys, directions)
        ctx.key_map, ctx.half_square = key_map, half_square
        return key_map.forward(keys, directions, half_square)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None, None]:
        keys, directions = ctx.saved_tensors
        return None, ctx.key_map.backward(keys, grad, directions, ctx.half_square), None, None


class Project(torch.autograd.Function):
    """`definition.project` as whole matrix products, by a map of keys, which are made again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        key_map: KeyMap,
        hidden: Tensor,
        query_weight: Tensor,
        query_bias: Tensor,
        key_weight: Tensor,
        key_bias: Tensor,
        directions: Tensor,
        half_square: float,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(hidden, query_weight, key_weight, key_bias, directions)
        ctx.key_map, ctx.half_square = key_map, half_square
        queries = _by_head(hidden, query_weight, query_bias, len(directions))
        keys = _by_head(hidden, key_weight, key_bias, directions.shape[1])
        return queries, key_map.forward(keys, directions, half_square)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_queries: Tensor, grad_logs: Tensor) -> tuple[Tensor | None, ...]:
        hidden, query_weight, key_weight, key_bias, directions = ctx.saved_tensors
        keys = _by_head(hidden, key_weight, key_bias, directions.shape[1])
        grad_query = grad_queries.flatten(1)
        grad_key = ctx.key_map.backward(keys, grad_logs, directions, ctx.half_square).flatten(1)
        grad_hidden = torch.mm(grad_query, query_weight).addmm_(grad_key, key_weight)
        by_query, by_key = ((torch.mm(grad.t(), hidden), grad.sum(0)) for grad in (grad_query, grad_key))
        return None, grad_hidden, *by_query, *by_key, None, None


def _by_head(hidden: Tensor, weight: Tensor, bias: Tensor, width: int) -> Tensor:
    """A linear map of hidden states, [n, h, width], node after node."""
    return torch.addmm(bias, hidden, weight.t()).view(len(hidden), len(weight) // width, width)
