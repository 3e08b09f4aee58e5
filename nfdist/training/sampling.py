"""Which nodes a rank takes in which batch: a pure function of the seed, the position and the world's size.

An epoch visits every node of its pools once, in an order drawn from the seed and the epoch. "uniform" has one pool of
all nodes, of which every batch takes a slice and divides it among the ranks; "local" has a pool for each part, and a
rank takes from the pools of its own parts. A batch's sizes depend on nothing but what the epoch has left, so all ranks
agree on the number of batches, and a job that resumes with other ranks goes on with just the nodes that remain.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol

import torch
from torch import Tensor

from nfdist import seeds
from nfdist.errors import ConfigError


@dataclass(frozen=True)
class Position:
    """Batches taken in all, the epoch, and how many nodes of every pool the epoch has used."""

    batch: int = 0
    epoch: int = 0
    consumed: tuple[int, ...] = ()


class Sampler(Protocol):
    """Batches by position."""

    def take(self, position: Position) -> tuple[list[Tensor], Position]:
        """The ascending node ids of every rank for the batch at a position, and the position after it."""
        ...

    def batches(self, position: Position) -> int:
        """How many batches the epoch has left."""
        ...

    def progress(self, position: Position) -> float:
        """Epochs made, the share of the present one included."""
        ...


@dataclass(frozen=True)
class WholeGraph:
    """Every batch is an epoch over all nodes, each rank with a fixed range of them."""

    ranges: Sequence[range]

    @cached_property
    def _node_ids(self) -> list[Tensor]:
        return [torch.arange(nodes.start, nodes.stop) for nodes in self.ranges]

    def take(self, position: Position) -> tuple[list[Tensor], Position]:
        return self._node_ids, Position(position.batch + 1, position.epoch + 1)

    def batches(self, position: Position) -> int:
        return 1

    def progress(self, position: Position) -> float:
        return float(position.epoch)


class Pools:
    """Random batches: pool p belongs to rank owners[p], or, where there are no owners, to all ranks together."""

    def __init__(self, pools: Sequence[Tensor], owners: Sequence[int] | None, ranks: int, batch_nodes: int, seed: int):
        self._pools, self._ranks, self._batch_nodes, self._seed = pools, ranks, batch_nodes, seed
        self._shared = owners is None
        self._groups = [list(range(len(pools)))]
        if owners is not None:
            self._groups = [[pool for pool, owner in enumerate(owners) if owner == rank] for rank in range(ranks)]
        self._order = lru_cache(maxsize=2 * len(pools))(self._draw_order)

    def take(self, position: Position) -> tuple[list[Tensor], Position]:
        consumed, left = self._used_and_left(position)
        rest = self._batches_left(left)
        sizes = [-(-count // rest) for count in left]
        slices = [
            self._order(position.epoch, pool)[used : used + size]
            for pool, (used, size) in enumerate(zip(consumed, sizes, strict=True))
        ]
        batches = (
            [part.sort().values for part in slices[0].tensor_split(self._ranks)]
            if self._shared
            else [torch.cat([slices[pool] for pool in group]).sort().values for group in self._groups]
        )
        after = tuple(used + size for used, size in zip(consumed, sizes, strict=True))
        if rest == 1:
            return batches, Position(position.batch + 1, position.epoch + 1)
        return batches, Position(position.batch + 1, position.epoch, after)

    def progress(self, position: Position) -> float:
        return position.epoch + sum(position.consumed) / max(1, sum(map(len, self._pools)))

    def batches(self, position: Position) -> int:
        return self._batches_left(self._used_and_left(position)[1])

    def _used_and_left(self, position: Position) -> tuple[Sequence[int], list[int]]:
        consumed = position.consumed or (0,) * len(self._pools)
        return consumed, [len(pool) - used for pool, used in zip(self._pools, consumed, strict=True)]

    def _batches_left(self, left: Sequence[int]) -> int:
        """The fewest equal batches in which no rank takes more than batch_nodes."""
        most = self._batch_nodes * (self._ranks if self._shared else 1)
        count = max(1, *(-(-sum(left[pool] for pool in group) // most) for group in self._groups))
        while any(sum(-(-left[pool] // count) for pool in group) > most for group in self._groups):
            count += 1
        return count

    def _draw_order(self, epoch: int, pool: int) -> Tensor:
        generator = seeds.numpy_generator(self._seed, "order", epoch, pool)
        return torch.from_numpy(generator.permutation(self._pools[pool].numpy()))


def part_owners(holders: Sequence[Sequence[int]], ranks: int) -> list[int]:
    """Which rank takes from which part, when each takes from its own; holders[p] are the ranks that can see part p."""
    owners: list[int] = []
    for able in holders:
        owners.append(min(able, key=lambda rank: (owners.count(rank), rank)))
    without = sorted(set(range(ranks)) - set(owners))
    if without:
        raise ConfigError(
            f'train.sampling = "local" needs a part for each of the {ranks} ranks, and rank {without[0]} has none of '
            f"the {len(holders)}: partition into more parts or use uniform"
        )
    return owners
