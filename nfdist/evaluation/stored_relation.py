"""What a baseline sums over: in an evaluation rows that are recorded, for new nodes those records.

A baseline calls `propagate` in a fixed order. What its evaluation recorded at call i, new nodes hear at call i: so its
forward pass is the same in training, evaluation and prediction.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import torch
from torch import Tensor

from nfdist.evaluation.full import BranchListener
from nfdist.graph.hop import Hop
from nfdist.graph.relation import Relation
from nfdist.store.gate import Column


@dataclass(frozen=True, kw_only=True)
class RecordedRelation(Relation):
    """A relation among all nodes; its listener is told of this rank's rows before each sum, counted from 1."""

    nodes: range
    listener: BranchListener
    calls: Iterator[int] = field(default_factory=lambda: count(1))

    def propagate(self, rows: Tensor) -> Tensor:
        """As any other relation. Every rank must call this."""
        self.listener(next(self.calls), rows[self.nodes.start : self.nodes.stop].__getitem__)
        return super().propagate(rows)


class StoredRelation:
    """Â_1 of new nodes by a hop from the graph, whose rows are `stored` for each call in turn, and from each other."""

    def __init__(self, hop: Sequence[Hop], stored: Sequence[Column]) -> None:
        self._hop, self._stored = hop, iter(stored)

    def propagate(self, rows: Tensor) -> Tensor:
        """What the new nodes get by the edges to them; `rows` [n, c] are their own."""
        return stored_sums(self._hop, next(self._stored), rows.contiguous())


def stored_sums(hop: Sequence[Hop], stored: Column, own: Tensor) -> Tensor:
    """What n new nodes with rows [n, c] of their own get by one hop: from stored rows of the graph, and each other.

    Sums are made by the CPU, beside the files.
    """
    of_graph, *among = hop
    device, own = own.device, own.cpu()
    everyone, states = slice(0, len(own)), stored.at(of_graph.segments[0].sources.numpy())
    parts = [of_graph.sums(everyone, states, own), *(one.sums(everyone, own, own) for one in among)]
    return (torch.stack(parts).sum(0) if among else parts[0]).to(device)
