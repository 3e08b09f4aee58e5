"""Border: rows that ranks lend each other because edges run from one to the other, a bounded number at a time."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from nfdist.collectives import exchange, largest, swap
from nfdist.world import World

ROUND_BYTES = 1 << 22  # every copy of a round stays in a core's cache, and costs far more than its latency


class Border:
    """Extended tensors hold the rows of this rank, then those it borrows from rank 0, from rank 1 and so on.

    Every rank must make one, and each call together with the others.
    """

    def __init__(self, world: World, wanted: Sequence[Tensor], round_bytes: int) -> None:
        """`wanted` are the rows to borrow from every rank, as that rank numbers its own."""
        self._world, self._round_bytes = world, min(round_bytes, ROUND_BYTES)
        self._counts = [len(rows) for rows in wanted]
        self._lent = exchange(world, wanted, "border")
        sizes = torch.tensor([*self._counts, *map(len, self._lent)])
        self._most = int(largest(world, sizes.max(), "border"))

    @property
    def num_borrowed(self) -> int:
        return sum(self._counts)

    def fetch(self, extended: Tensor) -> None:
        """Fill in the borrowed rows."""
        borrowed = self._borrowed(extended)
        for piece in self._rounds(extended):
            outgoing = [extended.index_select(0, rows[piece]) for rows in self._lent]
            arrived = swap(self._world, outgoing, [len(rows[piece]) for rows in borrowed], "border rows")
            for rows, content in zip(borrowed, arrived, strict=True):
                rows[piece] = content

    def give_back(self, extended: Tensor) -> None:
        """Add what other ranks hold in their copies of a row to the row itself."""
        borrowed = self._borrowed(extended)
        for piece in self._rounds(extended):
            counts = [len(rows[piece]) for rows in self._lent]
            arrived = swap(self._world, [rows[piece] for rows in borrowed], counts, "border sums")
            for rows, content in zip(self._lent, arrived, strict=True):
                extended.index_add_(0, rows[piece], content)

    def _borrowed(self, extended: Tensor) -> Sequence[Tensor]:
        return torch.split(extended[len(extended) - self.num_borrowed :], self._counts)

    def _rounds(self, extended: Tensor) -> Iterator[slice]:
        row_bytes = extended.element_size() * extended[:1].numel()
        rows = max(1, self._round_bytes // max(1, row_bytes * self._world.size))
        return (slice(start, start + rows) for start in range(0, self._most, rows))
