"""Refinement: restreaming a graph's rows, each of which goes to the part it is tied to most and that has room."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nfdist.partitioning.multilevel.row_graph import RowGraph, sums_before, table_sums
from nfdist.store.threads import in_threads

_SETTLED = 0.002  # a pass that moves a smaller share of the nodes is the last one, once no part is too heavy
_HASTE = 2  # a part that is too heavy gives up its surplus in this fraction of a pass: some rows have nowhere to go


@dataclass(frozen=True)
class _Moves:
    """Rows of a chunk, counted from its first: where each would go, what it would gain, and whether it may lose."""

    rows: NDArray[np.int64]
    target: NDArray[np.int64]
    gain: NDArray[np.int64]
    forced: NDArray[np.bool_]

    def only(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> "_Moves":
        """Some of them, in an order of their own if they are chosen by position."""
        return _Moves(self.rows[chosen], self.target[chosen], self.gain[chosen], self.forced[chosen])


class Refinement:
    """Parts [n] of the nodes of a graph, changed in place; `caps` [columns] is what a part may weigh."""

    def __init__(
        self, graph: RowGraph, parts: NDArray[np.int32], num_parts: int, caps: NDArray[np.int64], seed: int
    ) -> None:
        self.graph, self.parts, self.num_parts, self.caps, self.seed = graph, parts, num_parts, caps, seed
        self.loads = graph.loads(parts, num_parts)

    @property
    def is_balanced(self) -> bool:
        """Whether no part weighs more than it may."""
        return bool((self.loads <= self.caps).all())

    def restream(self, passes: int) -> None:
        """So many passes over all rows, or fewer if hardly any row moves."""
        for number in range(passes):
            moved, left = 0, self.loads.astype(np.float64)  # what is still to come of every part in this pass
            for group in self.graph.chunk_groups(self.seed, "refine", number):
                wishes = in_threads(self._wishes, group)
                for rows, moves in zip(group, wishes, strict=True):
                    weights = self.graph.weights(rows)
                    here = table_sums(self.parts[rows], weights, self.num_parts)
                    moved += self._apply(rows, weights, self._within_quota(rows, weights, moves, here, left))
                    left -= here
            if moved <= _SETTLED * self.graph.num_nodes and self.is_balanced:
                break

    def _wishes(self, rows: slice) -> _Moves:
        """Rows that would gain by another part with room for them, and rows of parts that weigh too much."""
        own, weights = self.parts[rows], self.graph.weights(rows)
        ties = self.graph.label_strengths(rows, self.parts, self.num_parts)
        here = ties.to_own(own)
        room = self.caps - self.loads
        fits = ties.label != own[ties.row]
        for column in range(len(self.caps)):
            weight = weights[ties.row, column]
            fits &= (weight <= room[ties.label, column]) | (weight == 0)
        target, strength = ties.strongest(len(own), np.where(fits, ties.strength, 0))
        forced = ((weights > 0) & (room < 0)[own]).any(1)
        if forced.any():  # whoever has to go, and knows nobody elsewhere, goes where there is most room
            emptiest = int((room / self.caps).min(1).argmax())
            target = np.where(forced & (target < 0), emptiest, target)
        gain = strength - here
        forced &= gain <= 0
        moves = np.flatnonzero((target >= 0) & (target != own) & ((gain > 0) | forced))
        return _Moves(moves, target[moves], gain[moves], forced[moves])

    def _within_quota(
        self, rows: slice, weights: NDArray[np.int64], moves: _Moves, here: NDArray[np.int64], left: NDArray[np.float64]
    ) -> _Moves:
        """Of the forced moves of every part as many as this chunk's share of its surplus asks for, cheapest first."""
        if not moves.forced.any():
            return moves
        own = self.parts[rows][moves.rows]
        order = np.lexsort((-moves.gain, ~moves.forced, own))
        moves = moves.only(order)
        own, heavy = own[order], weights[moves.rows]
        surplus = np.maximum(self.loads - self.caps, 0)
        quota = surplus * np.minimum(1, _HASTE * here / np.maximum(left, 1))
        before = sums_before(own, heavy)
        kept = ~moves.forced | ((before < quota[own]) & (heavy > 0)).any(1)
        return moves.only(kept)

    def _apply(self, rows: slice, weights: NDArray[np.int64], moves: _Moves) -> int:
        """Make the moves that gain most, as far as there is room; how many there were."""
        order = np.lexsort((-moves.gain, moves.target))
        chosen, target = moves.rows[order], moves.target[order]
        heavy = weights[chosen]
        room = (self.caps - self.loads)[target]
        fits = ((sums_before(target, heavy) + heavy <= room) | (heavy == 0)).all(1)
        chosen, target, heavy = chosen[fits], target[fits], heavy[fits]
        own = self.parts[rows]
        self.loads += table_sums(target, heavy, self.num_parts) - table_sums(own[chosen], heavy, self.num_parts)
        own[chosen] = target
        return len(chosen)


def caps_of(graph: RowGraph, num_parts: int, tolerance: float) -> NDArray[np.int64]:
    """What a part may weigh in every column: a tolerance above the mean, or the mean and the heaviest node."""
    mean = graph.totals() / num_parts
    heaviest = np.array([column.max(initial=0) for column in graph.columns])
    caps: NDArray[np.int64] = np.ceil(np.maximum(tolerance * mean, mean + heaviest)).clip(1).astype(np.int64)
    return caps
