"""Neighbors: what a NodeFormer layer asks of the graph, bound to some rows and to one layer's states.

Three provide it: a training batch with its halo, the whole graph a chunk of rows at a time (shard.py), and the stored
states of a graph that new nodes are added to (evaluation/predict.py). A baseline asks for less, a `Propagator`.

With relation.kind = "power", Â_j is Â_1^j, and the bias is a sum of sums over one hop's edges, the farthest first:

    Σ_j Â_1^j (h maps[j]ᵀ + offsets[j]) = Â_1 y_1   where   y_j = h maps[j]ᵀ + offsets[j] + Â_1 y_{j+1}

Between two sums the partial sums y_j of all rows must be known, as states are between two layers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
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


@dataclass(frozen=True)
class PowerNeighbors:
    """Neighbors by powers: those of the first hop alone, and Â_1 of y_j, given j from 1 and y_j of these rows."""

    first: Neighbors
    propagate: Callable[[int, Tensor], Tensor]

    def related(self, hidden: Tensor, maps: Tensor, offsets: Tensor) -> Tensor:
        sums = self.first.related(hidden, maps[-1:], offsets[-1:])
        for power in range(len(maps) - 1, 0, -1):
            sums = self.propagate(power, partial_sum(power, hidden, maps, offsets, sums))
        return sums


@dataclass(frozen=True)
class RelatedRows:
    """Neighbors whose part in a layer [n, c] is known already."""

    rows: Tensor

    def related(self, hidden: Tensor, maps: Tensor, offsets: Tensor) -> Tensor:
        return self.rows


def partial_sum(power: int, hidden: Tensor, maps: Tensor, offsets: Tensor, sums: Tensor) -> Tensor:
    """y_j of rows [n, c], for j = `power` from 1; `sums` are those of Â_1 y_{j+1}."""
    return torch.addmm(offsets[power - 1], hidden, maps[power - 1].t()) + sums
