"""What every in-edge weighs: the sum of the weights that the source lists for it, and 1 for a self-loop."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nfdist.collectives import total
from nfdist.errors import PartitionError
from nfdist.store.source_graph import SourceGraph
from nfdist.world import World

MOST_AT_A_NODE = 1e30  # 1 / sqrt(this) twice, as an edge is divided by the degrees of both ends, is a float32 in full


class EdgeWeights:
    """The weights [e], float32, of the in-edges of a graph, filled batch by batch.

    In a directed graph every copy of an edge that is listed twice has the sum of both; in an undirected one both
    directions of a pair have the sum over all of its listed edges, whichever way they run.
    """

    def __init__(self, graph: SourceGraph, directed: bool, weights: NDArray[np.float32]) -> None:
        self._graph, self._directed, self._weights = graph, directed, weights
        # What the edges to a node and from it weigh, each once: in an undirected graph that is the same.
        self._totals = [np.zeros(graph.num_nodes) for _ in range(1 + directed)]

    def add(
        self, place: slice, targets: NDArray[Any], sources: NDArray[Any], fresh: NDArray[np.bool_], given: NDArray[Any]
    ) -> None:
        """The next edges, of which `fresh` [listed] are no copies of the one before; all copies are in one batch."""
        number = np.cumsum(fresh) - 1
        summed = np.bincount(number, given)
        if self._directed:
            once = np.flatnonzero(fresh)
            targets, sources = targets[once], sources[once]
        with np.errstate(over="ignore"):  # what overflows is infinite, and refused as such
            weights = summed.astype(np.float32)
        weights[targets == sources] = 1
        self._weights[place] = weights[number] if self._directed else weights
        for totals, ends in zip(self._totals, (targets, sources), strict=False):
            np.add.at(totals, ends, weights)

    def checked(self, world: World) -> NDArray[np.float32]:
        """All weights, refused where those of a node are too large together. Every rank must call this."""
        for own in self._totals:
            totals = total(world, torch.from_numpy(own), "weights").numpy()
            for node in np.flatnonzero(totals > MOST_AT_A_NODE)[:1]:
                raise PartitionError(
                    f"{self._graph.name}: the edge weights of node {self._graph.original_ids[node]!s:.100} sum to "
                    f"{totals[node]:.3g}, more than {MOST_AT_A_NODE:g}: scale them down"
                )
        return self._weights
