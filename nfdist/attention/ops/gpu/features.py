"""Features of queries and keys as whole matrix products."""

import math
from functools import partial

import torch
from torch import Tensor

from nfdist.attention.ops.key_features import KeyLogs, KeyMap, Project


def _forward(keys: Tensor, directions: Tensor, half_square: float) -> Tensor:
    """w.x - |x|^2 / 2 - log(m) / 2, [n, h, m]."""
    constant = directions.new_full((len(directions),), -math.log(len(directions)) / 2)
    projected = torch.addmm(constant, keys.flatten(0, 1), directions.t())
    norms = torch.linalg.vector_norm(keys, dim=2, keepdim=True)
    return projected.view(*keys.shape[:2], len(directions)).addcmul_(norms, norms, value=-half_square)


def _backward(keys: Tensor, grad: Tensor, directions: Tensor, half_square: float) -> Tensor:
    grad_keys = torch.mm(grad.flatten(0, 1), directions).view_as(keys)
    return grad_keys.addcmul_(grad.sum(2, keepdim=True), keys, value=-2 * half_square)


_KEY_MAP = KeyMap(_forward, _backward)
# See `definition`, which has their types.
key_logs = partial(KeyLogs.apply, _KEY_MAP)
project = partial(Project.apply, _KEY_MAP)
