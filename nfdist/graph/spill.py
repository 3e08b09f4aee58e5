"""Spill: where tensors with a row for every node live, in memory as long as they fit and in files after that."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from nfdist.scratch import Scratch


class Spill(Scratch):
    """Tensors of zeros."""

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        size = math.prod(shape) * dtype.itemsize
        if size == 0:
            return torch.zeros(tuple(shape), dtype=dtype)
        return torch.frombuffer(self.take(size), dtype=dtype).view(tuple(shape))

    def fits(self, shape: Sequence[int], dtype: torch.dtype) -> bool:
        """Whether the next tensor, if it is this one, will be in memory."""
        return self.has_room(math.prod(shape) * dtype.itemsize)
