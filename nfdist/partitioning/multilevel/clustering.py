"""Clusters by label propagation with a limit of size: every node joins the label it is tied to most."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfdist import seeds
from nfdist.partitioning.multilevel.row_graph import RowGraph, sums_before
from nfdist.store.threads import in_threads

_SETTLED = 0.05  # a pass that moves a smaller share of the nodes is the last one
_FULL = 0.9  # of the limit, up to which nodes without a cluster are put together
_ROUNDING = 1e-9  # of sums of masses, far below what a node weighs of its cluster
_FINER = 16  # strengths above what chance would give are counted in sixteenths


@dataclass(frozen=True)
class _Wishes:
    """For rows of a chunk: the label each is tied to most (-1: to none), and the one it would move to, if any (-1)."""

    favorite: NDArray[np.int64]
    target: NDArray[np.int64]
    gain: NDArray[np.int64]


class Clustering:
    """Labels [n] of the nodes of a graph, none of which weighs more than `limit` (a node alone may).

    A node's mass is its share of the whole in every column, added up. Of labels that are equal to a node the largest
    wins: since labels are drawn at random, nodes agree on whom to follow. Nodes that are alone join larger labels in
    one pass and smaller ones in the next: two that want to join each other would swap their labels forever. With
    `above_chance` ties count only as far as they are stronger than degrees alone make them.
    """

    def __init__(self, graph: RowGraph, limit: float, seed: int, above_chance: bool = False) -> None:
        self.graph, self.limit, self.seed, self.above_chance = graph, limit, seed, above_chance
        self.labels = np.arange(graph.num_nodes, dtype=np.int32)
        seeds.numpy_generator(seed, "labels").shuffle(self.labels)
        self._shares = 1 / np.maximum(graph.totals(), 1)
        self._masses = np.empty(graph.num_nodes)
        self._volumes = np.empty(graph.num_nodes) if above_chance else None
        for rows in (slice(start, start + (1 << 18)) for start in range(0, graph.num_nodes, 1 << 18)):
            self._masses[self.labels[rows]] = self._mass_of(rows)
            if self._volumes is not None:
                self._volumes[self.labels[rows]] = graph.columns[1][rows]

    def propagate(self, passes: int) -> NDArray[np.int32]:
        """The labels after so many passes, or fewer if hardly any node moves."""
        for number in range(passes):
            moved = 0
            for group in self.graph.chunk_groups(self.seed, "cluster", number):
                for rows, wishes in zip(group, in_threads(self._wishes, group), strict=True):
                    moved += self._join(rows, wishes, upwards=number % 2 == 0)
                    moved += self._gather_lone(rows, wishes)
            if number and moved < _SETTLED * self.graph.num_nodes:
                break
        return self.labels

    def _mass_of(self, rows: slice) -> NDArray[np.float64]:
        mass: NDArray[np.float64] = self.graph.weights(rows) @ self._shares
        return mass

    def _wishes(self, rows: slice) -> _Wishes:
        own, masses = self.labels[rows], self._mass_of(rows)
        ties = self.graph.label_strengths(rows, self.labels, self.graph.num_nodes)
        strength = ties.strength
        if self._volumes is not None:
            degrees = self.graph.columns[1][rows]
            chance = self._volumes[ties.label] * (degrees / max(1, self.graph.columns[1].sum()))[ties.row]
            strength = (_FINER * (ties.strength - chance)).astype(np.int64)
        is_own = ties.label == own[ties.row]
        here = np.zeros(len(own), np.int64)
        here[ties.row[is_own]] = strength[is_own]
        strength = np.where(is_own, 0, strength)
        favorite, top = ties.strongest(len(own), strength)
        full = (favorite >= 0) & (self._masses[favorite] + masses > self.limit)
        target = np.where(full, -1, favorite)
        if full.any():  # the strongest that has room instead
            some = full[ties.row]
            others = type(ties)(ties.row[some], ties.label[some], ties.strength[some])
            room = self._masses[others.label] + masses[others.row] <= self.limit
            second, strengths = others.strongest(len(own), np.where(room, strength[some], 0))
            target[full], top[full] = second[full], strengths[full]
        return _Wishes(favorite, np.where(top > here, target, -1), top - here)

    def _join(self, rows: slice, wishes: _Wishes, upwards: bool) -> int:
        """Move the rows that wish to, those that gain most first, as far as there is room."""
        masses = self._mass_of(rows)
        waits = self._alone(rows, masses) & ((wishes.target > self.labels[rows]) != upwards)
        chosen = np.flatnonzero((wishes.target >= 0) & ~waits)
        chosen = chosen[np.lexsort((-wishes.gain[chosen], wishes.target[chosen]))]
        target, mass = wishes.target[chosen], masses[chosen]
        fits = self._masses[target] + sums_before(target, mass) + mass <= self.limit
        self._move(rows, chosen[fits], target[fits], mass[fits])
        return int(fits.sum())

    def _gather_lone(self, rows: slice, wishes: _Wishes) -> int:
        """Put together rows that are alone because one label that they are tied to is full, or have no ties at all.

        Else the leaves of a large star, and nodes without edges, would stay as many as they are.
        """
        own, masses = self.labels[rows], self._mass_of(rows)
        full = (wishes.favorite < 0) | (self._masses[wishes.favorite] + masses > self.limit)
        chosen = np.flatnonzero(self._alone(rows, masses) & (masses < self.limit / 2) & full)
        chosen = chosen[np.argsort(wishes.favorite[chosen], kind="stable")]
        if not len(chosen):
            return 0
        favorite, mass = wishes.favorite[chosen], masses[chosen]
        # The rows before weigh less than a multiple of what fits: those between two multiples make a cluster.
        number = (sums_before(favorite, mass) / (_FULL * self.limit / 2)).astype(np.int64)
        changes = (np.diff(favorite, prepend=-2) != 0) | (np.diff(number, prepend=-1) != 0)
        leader = own[chosen[changes]][np.cumsum(changes) - 1]
        joins = leader != own[chosen]
        self._move(rows, chosen[joins], leader[joins], mass[joins])
        return int(joins.sum())

    def _alone(self, rows: slice, masses: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which rows have their label for themselves."""
        alone: NDArray[np.bool_] = self._masses[self.labels[rows]] <= masses * (1 + _ROUNDING)
        return alone

    def _move(
        self, rows: slice, chosen: NDArray[np.int64], target: NDArray[np.integer[Any]], mass: NDArray[np.float64]
    ) -> None:
        own = self.labels[rows]
        sums: list[tuple[NDArray[np.float64], NDArray[Any]]] = [(self._masses, mass)]
        if self._volumes is not None:
            sums.append((self._volumes, self.graph.columns[1][rows][chosen]))
        for totals, amounts in sums:
            np.subtract.at(totals, own[chosen], amounts)
            np.add.at(totals, target, amounts)
        own[chosen] = target
