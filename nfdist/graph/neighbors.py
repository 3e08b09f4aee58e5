"""Neighbors: what a NodeFormer layer asks of the graph, bound to some rows and to one layer's states.

Three provide it: a training batch with its halo, the whole graph a chunk of rows at a time (shard.py), and the stored
states of a graph that new nodes are added to (evaluation/predict.py). A baseline asks for less, a `Propagator`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from nfdist.graph.relation import Relation, mapped_sums, relate


class Neighbors(Protocol):
    """The weighted sums over each hop's edges for n rows."""

    def related(self, hidden: Tensor, maps: Tensor, offsets: Tensor) -> Tensor:
        """Σ_j (Â_j h) maps[j]ᵀ + totals_j ⊗ offsets[j], [n, c]; `hidden` [n, c] are the rows' own states.

        Maps are [j, c, c] and offsets [j, c], one a hop; totals_j [n] are the sums of the weights of Â_j.
        """
        ...


class Propagator(Protocol):
    """The edges of Â_1 to n rows: a `Relation`, or what stands for one."""

    def propagate(self, rows: Tensor) -> Tensor:
        """Â_1 of rows [n, c] and of whatever else sends to them."""
        ...


@dataclass(frozen=True)
class BatchNeighbors:
    """The neighbors of a batch: relations, and the states [sources, c] that their edges start from, own rows first."""

    relations: Sequence[Relation]
    states: Tensor

    def related(self, hidden: Tensor, maps: Tensor, offsets: Tensor) -> Tensor:
        return relate(self.states, maps, offsets, self.relations)


@dataclass(frozen=True)
class SummedNeighbors:
    """Neighbors whose sums [n, c] over every hop are known, beside the totals [n, j] of the weights; no gradients."""

    sums: Sequence[Tensor]
    totals: Tensor

    def related(self, hidden: Tensor, maps: Tensor, offsets: Tensor) -> Tensor:
        return mapped_sums(self.sums, self.totals, maps, offsets)
