"""RawGraph: what a reader found, before it is checked and put into one form."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfdist.store.row_shares import RowShares
from nfdist.world import World

NO_EDGES = np.empty(0, np.int64)


@dataclass
class RawGraph:
    """One graph as read: `original_ids` None means 0 .. n - 1, `num_classes` 0 means as many as the labels show.

    `features` are a matrix, dense or sparse, or the columns of a table. `members` maps the codes of the official split
    to masks or node numbers, as `splits.official` takes them. `names` are what the user calls ids, labels and classes,
    as fields of a Schema. `weights` stand beside the edges.

    Of a world of several ranks each has the features of its `shares` of the nodes, and edges of its own: the first one
    has the number `first_edge`. All else is of the whole graph, and so are both where there are no `shares`.
    """

    name: str
    sources: NDArray[Any]
    targets: NDArray[Any]
    features: Any
    labels: NDArray[Any] | None
    original_ids: NDArray[Any] | None = None
    members: Mapping[int, NDArray[Any]] | None = None
    num_classes: int = 0
    notes: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    weights: NDArray[Any] | None = None
    shares: RowShares | None = None
    first_edge: int = 0

    def shared(self, world: World) -> "RawGraph":
        """What a rank keeps of a graph that it has read as a whole."""
        if np.ndim(self.features) != 2:
            return self  # which is refused
        nodes, edges = (RowShares.equal(world, count) for count in (np.shape(self.features)[0], len(self.sources)))
        kept = replace(self, features=self.features[nodes.own], shares=nodes)
        listed = [ends for ends in (self.sources, self.targets, self.weights) if ends is not None]
        if any(ends.shape != (len(self.sources),) for ends in listed):
            return kept  # which is refused, too
        sources, targets = self.sources[edges.own], self.targets[edges.own]
        weights = None if self.weights is None else self.weights[edges.own]
        return replace(kept, sources=sources, targets=targets, weights=weights, first_edge=edges.own.start)
