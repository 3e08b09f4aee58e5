"""Contraction: a graph whose nodes are the clusters of another, and whose edges weigh what runs between them."""

import numpy as np
from numpy.typing import NDArray

from nfdist import log, seeds
from nfdist.memory import format_bytes
from nfdist.partitioning.multilevel.row_graph import RowGraph, summed

BYTES_PER_PAIR = 112  # at the peak: the keys of pairs, and their matrix beside its transpose and the sum of both
# A tree of clusters has one each. With half of these in a sample 8 parts of a tree of 10M nodes cut a ninth of it.
_PAIRS_A_CLUSTER = 2
_COUNTED = 1 / 32  # of the edges are looked at to tell how many run between clusters


def contract(
    graph: RowGraph, labels: NDArray[np.int32], max_pairs: int, seed: int
) -> tuple[RowGraph, NDArray[np.int32]]:
    """The graph of clusters, and the cluster [n] of every node.

    Of more edges between clusters than `max_pairs` a random share is taken: what runs between large clusters is still
    in proportion, and parts are refined on the whole graph later. A sparse graph would fall apart: that is told.
    """
    used = np.zeros(graph.num_nodes, np.bool_)
    used[labels] = True
    clusters = (np.cumsum(used, dtype=np.int32) - 1)[labels]
    num_clusters = int(used.sum())
    num_pairs = _num_pairs(graph, clusters, seed)
    share = max_pairs / max(1, num_pairs)
    if share < 1 and max_pairs < _PAIRS_A_CLUSTER * num_clusters:
        log.notice(
            f"memory has room for {max_pairs:,} of some {num_pairs:,.0f} edges between {num_clusters:,} clusters: "
            f"about {format_bytes(int((num_pairs - max_pairs) * BYTES_PER_PAIR))} more of it would cut fewer edges"
        )
    keys, weights = summed(*_pairs(graph, clusters, num_clusters, share, seed))
    columns = tuple(np.bincount(clusters, column, num_clusters).astype(np.int64) for column in graph.columns)
    return _symmetric(keys, weights, num_clusters, columns), clusters


def _num_pairs(graph: RowGraph, clusters: NDArray[np.int32], seed: int) -> float:
    """About how many edges run between clusters, each once."""
    seen = found = 0
    for group in graph.chunk_groups(seed, "count"):
        for rows in group:
            found += len(_pairs_of(graph, rows, clusters, 1)[0])
            seen += int(graph.indptr[rows.stop]) - int(graph.indptr[rows.start])
        if seen > _COUNTED * graph.num_edges:
            break
    return found * graph.num_edges / max(1, seen)


def _pairs(
    graph: RowGraph, clusters: NDArray[np.int32], num_clusters: int, share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Two clusters, the smaller first, as one number, for a share of the edges between any; and what each weighs."""
    keys, weights = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for number, group in enumerate(graph.chunk_groups(seed, "contract")):
        draws = seeds.numpy_generator(seed, "pairs", number)
        for rows in group:
            pairs, edge_weights = _pairs_of(graph, rows, clusters, num_clusters)
            kept = slice(None) if share >= 1 else draws.random(len(pairs), dtype=np.float32) < share
            keys.append(pairs[kept])
            if edge_weights is not None:
                weights.append(edge_weights[kept])
    return np.concatenate(keys), None if graph.edge_weights is None else np.concatenate(weights)


def _pairs_of(
    graph: RowGraph, rows: slice, clusters: NDArray[np.int32], num_clusters: int
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """The same for some rows; in a graph without weights an edge that stands for several is there as often."""
    targets, sources, weights = graph.edges(rows)
    ends, others = clusters[rows][targets], clusters[sources]
    kept = ends < others  # the other direction comes with the row of the other end
    pairs = ends[kept].astype(np.int64) * num_clusters + others[kept]
    if weights is not None and graph.edge_weights is None:
        return np.repeat(pairs, weights[kept]), None
    return pairs, None if weights is None else weights[kept]


def _symmetric(
    keys: NDArray[np.int64], weights: NDArray[np.int64], num_nodes: int, columns: tuple[NDArray[np.int64], ...]
) -> RowGraph:
    """The graph with the edges of some pairs in both directions."""
    import scipy.sparse

    rows = (keys // max(1, num_nodes)).astype(np.int32)
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=num_nodes), out=indptr[1:])
    others = (keys % max(1, num_nodes)).astype(np.int32)
    one_way = scipy.sparse.csr_array((weights, others, indptr), shape=(num_nodes, num_nodes))
    both = (one_way + one_way.T).tocsr()
    return RowGraph(both.indptr, both.indices, columns, both.data)
