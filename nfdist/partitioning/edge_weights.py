"""What every in-edge weighs: the sum of the weights that the source lists for it, and 1 for a self-loop."""

from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from nfdist.errors import PartitionError
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.source_graph import SourceGraph

MOST_AT_A_NODE = 1e30  # 1 / sqrt(this) twice, as an edge is divided by the degrees of both ends, is a float32 in full


def edge_weights(graph: SourceGraph, in_edges: Adjacency, directed: bool) -> Tensor:
    """Weights [e], float32, of the in-edges that were made of a graph's edges.

    In a directed graph every copy of an edge that is listed twice has the sum of both; in an undirected one both
    directions of a pair have the sum over all of its listed edges, whichever way they run.
    """
    assert graph.weights is not None
    loops = graph.sources == graph.targets
    sources, targets = graph.sources, graph.targets
    if not directed:
        sources, targets = np.minimum(sources, targets), np.maximum(sources, targets)
    summed = _summed(np.where(loops, 0.0, graph.weights), targets, sources, graph.num_nodes)
    if not directed:
        lower = summed.tocoo()
        apart = lower.row != lower.col
        targets = np.concatenate([lower.row, lower.col[apart]])
        sources = np.concatenate([lower.col, lower.row[apart]])
        summed = _summed(np.concatenate([lower.data, lower.data[apart]]), targets, sources, graph.num_nodes)
    targets_of = in_edges.targets.numpy()
    found = in_edges.sources.numpy()
    fresh = np.ones(len(found), dtype=bool)
    fresh[1:] = (found[1:] != found[:-1]) | (targets_of[1:] != targets_of[:-1])  # copies of an edge are side by side
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused as such
        weights = summed.data[np.cumsum(fresh) - 1].astype(np.float32)
    weights[found == targets_of] = 1
    for ends in (targets_of, found):
        totals = np.bincount(ends[fresh], weights[fresh], graph.num_nodes)
        for node in np.flatnonzero(totals > MOST_AT_A_NODE)[:1]:
            raise PartitionError(
                f"{graph.name}: the edge weights of node {graph.original_ids[node]!s:.100} sum to {totals[node]:.3g}, "
                f"more than {MOST_AT_A_NODE:g}: scale them down"
            )
    return torch.from_numpy(weights)


def _summed(weights: Any, targets: Any, sources: Any, num_nodes: int) -> Any:
    """Row t holds what the sources of t weigh, ascending, in float64; weights of 0 stay."""
    entries = np.asarray(weights, np.float64), (targets, sources)
    matrix = scipy.sparse.coo_array(entries, shape=(num_nodes, num_nodes)).tocsr()
    matrix.sum_duplicates()
    return matrix
