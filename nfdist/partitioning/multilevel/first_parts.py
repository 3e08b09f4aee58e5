"""The first parts of a coarse graph: by linear deterministic greedy, restreamed, from several random orders."""

import numpy as np
from numpy.typing import NDArray

from nfdist import seeds
from nfdist.partitioning.multilevel.refinement import Refinement
from nfdist.partitioning.multilevel.row_graph import RowGraph

_TRIES = 6
_STREAMS = 5  # the cut hardly falls after so many
_MOST_STEPS = 1 << 20  # of a node each, over all tries, beyond which ranges have to do: some twenty seconds
_REFINING_PASSES = 4


def first_parts(graph: RowGraph, num_parts: int, caps: NDArray[np.int64], seed: int) -> NDArray[np.int32]:
    """The best of several tries: the one with the lightest cut among those that keep to the caps."""
    tries = min(_TRIES, _MOST_STEPS // max(1, graph.num_nodes * _STREAMS * (1 + num_parts // 256)))
    found = []
    for number in range(tries + 1):
        parts = _ranges(graph, num_parts) if number == tries else _greedy(graph, num_parts, caps, seed, number)
        refinement = Refinement(graph, parts, num_parts, caps, seed)
        refinement.restream(_REFINING_PASSES)
        surplus = np.maximum(refinement.loads - caps, 0).sum()
        found.append((surplus > 0, graph.cut(parts)[0], number, parts))
    return min(found, key=lambda one: one[:3])[3]


def _ranges(graph: RowGraph, num_parts: int) -> NDArray[np.int32]:
    """Ranges that weigh the same, over all columns, of an order that puts neighbors side by side."""
    import scipy.sparse.csgraph

    shape = (graph.num_nodes, graph.num_nodes)
    matrix = scipy.sparse.csr_array((_edge_weights(graph), graph.sources, graph.indptr), shape=shape)
    order = scipy.sparse.csgraph.reverse_cuthill_mckee(scipy.sparse.csr_matrix(matrix), symmetric_mode=True)
    shares = graph.weights(slice(0, graph.num_nodes))[order] / np.maximum(graph.totals(), 1)
    middles = shares.sum(1).cumsum() - shares.sum(1) / 2
    parts = np.empty(graph.num_nodes, np.int32)
    parts[order] = np.minimum(middles * num_parts / max(shares.sum(), 1e-300), num_parts - 1)
    return parts


def _greedy(graph: RowGraph, num_parts: int, caps: NDArray[np.int64], seed: int, number: int) -> NDArray[np.int32]:
    """Every node goes to the part it is tied to most, less the fuller that part is; heavy ones first from then on."""
    draws = seeds.numpy_generator(seed, "first parts", number)
    shares = graph.weights(slice(0, graph.num_nodes)) / caps
    loads = np.zeros((num_parts, shares.shape[1]))
    parts = np.full(graph.num_nodes, num_parts, np.int32)
    edge_weights = _edge_weights(graph)
    for stream in range(_STREAMS):
        order = (
            np.argsort(-shares.sum(1) * draws.random(len(shares)), kind="stable")
            if stream
            else draws.permutation(len(shares))
        )
        for node in order:
            edges = slice(graph.indptr[node], graph.indptr[node + 1])
            ties = np.bincount(parts[graph.sources[edges]], edge_weights[edges], num_parts + 1)[:num_parts]
            if stream:
                loads[parts[node]] -= shares[node]
            fullness = (loads + shares[node]).max(1)
            score = np.where(
                fullness <= 1, (ties + 1e-9) * np.maximum(1 - fullness, 0) ** (1 / (stream + 1)), -fullness
            )
            parts[node] = score.argmax()
            loads[parts[node]] += shares[node]
    return parts


def _edge_weights(graph: RowGraph) -> NDArray[np.int64]:
    return np.ones(graph.num_edges, np.int64) if graph.edge_weights is None else graph.edge_weights
