"""Halo: rows that live on other ranks but have edges to nodes of this one, exchanged a bounded number at a time.

Training exchanges hidden states in each layer, differentiably; evaluation fills the copies in its states.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.collectives import exchange, largest, swap
from nfdist.world import World

ROUND_BYTES = 1 << 22  # every copy of a round stays in a core's cache, and costs far more than its latency


@dataclass(frozen=True)
class Halo:
    """An extended tensor is [own rows, copies of rows of rank 0, of rank 1, ...]; every call is made by all ranks.

    `lent` are the own rows that each rank has copies of, `copied_counts` how many copies there are here of each rank's
    rows, and `most` is the largest of all these numbers on any rank.
    """

    lent: tuple[Tensor, ...]
    copied_counts: tuple[int, ...]
    most: int
    round_bytes: int = ROUND_BYTES

    @staticmethod
    def build(world: World, wanted: Sequence[Tensor], round_bytes: int = ROUND_BYTES) -> "Halo":
        """`wanted` are the rows to copy from every rank, as that rank numbers its own."""
        lent = tuple(exchange(world, wanted, "halo requests"))
        counts = tuple(map(len, wanted))
        most = int(largest(world, torch.tensor(max(*counts, *map(len, lent))), "halo requests"))
        return Halo(lent, counts, most, min(round_bytes, ROUND_BYTES))

    @property
    def num_copied(self) -> int:
        return sum(self.copied_counts)

    def fetch(self, extended: Tensor, world: World) -> None:
        """Fill in the copies."""
        copies = self._copies(extended)
        for piece in self._rounds(extended):
            outgoing = [extended.index_select(0, rows[piece]) for rows in self.lent]
            arrived = swap(world, outgoing, [len(rows[piece]) for rows in copies], "halo rows")
            for rows, content in zip(copies, arrived, strict=True):
                rows[piece] = content

    def accumulate(self, extended: Tensor, world: World) -> None:
        """Add what other ranks hold in their copies of a row to the row itself: the adjoint of `fetch`."""
        copies = self._copies(extended)
        for piece in self._rounds(extended):
            counts = [len(rows[piece]) for rows in self.lent]
            arrived = swap(world, [rows[piece] for rows in copies], counts, "halo sums")
            for rows, content in zip(self.lent, arrived, strict=True):
                extended.index_add_(0, rows[piece], content)

    def extend(self, rows: Tensor, world: World) -> Tensor:
        """Own rows with the copies after them, differentiable."""
        extended: Tensor = _Extend.apply(rows, self, world)
        return extended

    def each(self, change: Callable[[Tensor], Tensor]) -> "Halo":
        """The same with each of its tensors changed, as by a copy to a device."""
        return replace(self, lent=tuple(map(change, self.lent)))

    def _copies(self, extended: Tensor) -> Sequence[Tensor]:
        return torch.split(extended[len(extended) - self.num_copied :], list(self.copied_counts))

    def _rounds(self, extended: Tensor) -> Iterator[slice]:
        row_bytes = extended.element_size() * extended[:1].numel()
        rows = max(1, self.round_bytes // max(1, row_bytes * len(self.lent)))
        return (slice(start, start + rows) for start in range(0, self.most, rows))


class _Extend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, halo: Halo, world: World) -> Tensor:
        ctx.halo, ctx.world = halo, world
        extended = rows.new_empty(len(rows) + halo.num_copied, *rows.shape[1:])
        extended[: len(rows)] = rows
        halo.fetch(extended, world)
        return extended

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        grad = grad.clone(memory_format=torch.contiguous_format)
        ctx.halo.accumulate(grad, ctx.world)
        return grad[: len(grad) - ctx.halo.num_copied], None, None
