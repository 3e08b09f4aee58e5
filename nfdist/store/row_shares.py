"""RowShares: which consecutive rows every rank of a world holds, and how rows reach whoever needs them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nfdist.collectives import exchange, swap, tally
from nfdist.store.ranges import Integers, offsets
from nfdist.world import World


@dataclass(frozen=True)
class RowShares:
    """Rank r holds the rows bounds[r] .. bounds[r + 1] - 1."""

    world: World
    bounds: NDArray[np.int64]

    @staticmethod
    def equal(world: World, num_rows: int) -> "RowShares":
        """So many rows, divided evenly."""
        return RowShares(world, np.arange(world.size + 1) * num_rows // world.size)

    @staticmethod
    def of(world: World, own_rows: int) -> "RowShares":
        """The rows of all ranks one after another, of which each knows its own number. Every rank must call this."""
        counts = tally(world, torch.tensor([own_rows]), "rows")[:, 0].numpy()
        return RowShares(world, offsets(counts).astype(np.int64))

    @property
    def num_rows(self) -> int:
        return int(self.bounds[-1])

    @property
    def own(self) -> slice:
        """The rows of this rank."""
        return slice(int(self.bounds[self.world.rank]), int(self.bounds[self.world.rank + 1]))

    def owners(self, rows: Integers) -> NDArray[np.int64]:
        """The rank of every row."""
        return np.searchsorted(self.bounds[1:], rows, side="right")

    def deliver(self, wanted: Sequence[Integers], read: Callable[[Integers], NDArray[Any]]) -> NDArray[Any]:
        """The rows that this rank wants, in order; `read` gives some of its own by their places among these.

        `wanted` has the rows of every rank, ascending. Every rank must call this.
        """
        own = self.own
        asked = [rows[slice(*np.searchsorted(rows, (own.start, own.stop)))] for rows in wanted]
        counts = np.diff(np.searchsorted(wanted[self.world.rank], self.bounds))
        return swap_arrays(self.world, [read(rows - own.start) for rows in asked], counts.tolist())


def swap_arrays(world: World, outgoing: Sequence[NDArray[Any]], counts: Sequence[int] | None = None) -> NDArray[Any]:
    """Rows for every rank, of any type; those that arrive, in the order of ranks, of which `counts` come from each.

    Every rank must call this.
    """
    if world.size == 1:
        return outgoing[0]
    like = outgoing[0]
    width = like.dtype.itemsize * int(np.prod(like.shape[1:], dtype=np.int64))
    as_bytes = [torch.from_numpy(_as_bytes(rows, width)) for rows in outgoing]  # gloo knows some types only
    arrived = exchange(world, as_bytes, "rows") if counts is None else swap(world, as_bytes, counts, "rows")
    return torch.cat(arrived).numpy().view(like.dtype).reshape(-1, *like.shape[1:])


def _as_bytes(rows: NDArray[Any], width: int) -> NDArray[np.uint8]:
    return np.ascontiguousarray(rows).reshape(-1).view(np.uint8).reshape(-1, width) if len(rows) else _none(width)


def _none(width: int) -> NDArray[np.uint8]:
    return np.empty((0, width), np.uint8)
