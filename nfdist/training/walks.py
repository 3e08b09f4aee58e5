"""Batches of random walks, as GraphSAINT takes them: dense where uniform batches of a sparse graph have few edges.

A batch is the nodes that walks of a given length meet, from roots drawn uniformly among all nodes: an epoch has as many
batches as those of distinct nodes would be to meet every node once. Or the roots are some nodes alone, such as those to
train on where they are few: an epoch has as many batches as have that many roots.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdist import seeds
from nfdist.collectives import largest
from nfdist.store.distributed import DistributedStore
from nfdist.store.store import GraphStore
from nfdist.training.sampling import Position


class Walks:
    """Batches by position: every rank has walks of its own, drawn from the seed, its number and the rank alone.

    A walk goes against the direction of edges, from a node to a source of its in-edges, and stays where there is none.
    Where ranks hold different parts each makes the moves that begin in its own, for the walks of all: then every rank
    must take every batch.
    """

    def __init__(
        self, store: GraphStore, ranks: int, batch_nodes: int, walk_length: int, seed: int, roots: Tensor | None = None
    ) -> None:
        self._store, self._ranks, self._batch_nodes, self._seed = store, ranks, batch_nodes, seed
        self._walk_length = walk_length
        self._walks = batch_nodes // (walk_length + 1)
        self._roots = None if roots is None else roots.numpy()
        self._met = store.num_nodes if roots is None else len(roots) * (walk_length + 1)  # in an epoch

    def take(self, position: Position) -> tuple[list[Tensor], Position]:
        batches = self._visited(position.batch)
        if self.batches(position) == 1:
            return batches, Position(position.batch + 1, position.epoch + 1)
        consumed = sum(position.consumed) + self._ranks * self._batch_nodes
        return batches, Position(position.batch + 1, position.epoch, (consumed,))

    def batches(self, position: Position) -> int:
        left = self._met - sum(position.consumed)
        return max(1, -(-left // (self._ranks * self._batch_nodes)))

    def progress(self, position: Position) -> float:
        return position.epoch + sum(position.consumed) / self._met

    def _visited(self, batch: int) -> list[Tensor]:
        """The ascending ids of the nodes that each rank's walks meet."""
        streams = [seeds.numpy_generator(self._seed, "walks", batch, rank) for rank in range(self._ranks)]
        count = self._store.num_nodes if self._roots is None else len(self._roots)
        here = np.stack([stream.integers(count, size=self._walks) for stream in streams])
        if self._roots is not None:
            here = self._roots[here]
        visited = [here]
        for _ in range(self._walk_length):
            chances = np.stack([stream.random(self._walks) for stream in streams])
            here = self._moved(here.ravel(), chances.ravel()).reshape(here.shape)
            visited.append(here)
        return [torch.from_numpy(np.unique(nodes)) for nodes in np.concatenate(visited, 1)]

    def _moved(self, here: NDArray[np.int64], chances: NDArray[np.float64]) -> NDArray[np.int64]:
        """For every node the one of its in-edges' sources that a number in [0, 1) chooses."""
        local = self._store.local
        moved = np.full_like(here, -1)
        for number in local.held_parts:
            part = local.parts[number]
            inside = np.flatnonzero((here >= part.start) & (here < part.stop))
            starts, degrees, sources = local.in_edges_of(number, here[inside] - part.start)
            going = degrees > 0
            steps = (chances[inside] * degrees).astype(np.int64)
            moved[inside] = here[inside]
            moved[inside[going]] = sources[(starts + steps)[going]]
        if isinstance(self._store, DistributedStore):
            moved = largest(self._store.world, torch.from_numpy(moved), "walks").numpy()
        return moved
