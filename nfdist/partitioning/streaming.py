"""Parts for graphs that METIS cannot hold: clustered and contracted as they stream by, divided, refined as they stream.

    cluster     label propagation over the rows, a few passes, no cluster larger than a small fraction of a part
    contract    clusters become nodes; both again, in memory, until few are left
    divide      linear deterministic greedy, restreamed, from several orders
    refine      back through the levels: each row goes to the part it is tied to most and that has room

Only arrays with a number a node are held, and a coarse graph of limited size. Edges are read a chunk at a time, in
about a dozen passes.
"""

import numpy as np
from numpy.typing import NDArray

from nfdist import log
from nfdist.partitioning.multilevel.clustering import Clustering
from nfdist.partitioning.multilevel.contraction import BYTES_PER_PAIR, contract
from nfdist.partitioning.multilevel.first_parts import first_parts
from nfdist.partitioning.multilevel.refinement import Refinement, caps_of
from nfdist.partitioning.multilevel.row_graph import Integers, RowGraph
from nfdist.seeds import derive

TOLERANCE = 1.03  # of the mean, as METIS by default
_FINENESS = (64, 16)  # clusters of the first level are 1 / 64 of a part or less, those of the next 1 / 16
_COARSE_NODES, _COARSE_NODES_A_PART = 1024, 32  # so few need no further level
_CLUSTER_PASSES = 5
_REFINING_PASSES = 4
_BYTES_PER_NODE = 40
_CHUNK_BYTES = 256 << 20


def stream_assign(
    indptr: Integers, sources: Integers, trained: NDArray[np.bool_], num_parts: int, seed: int, memory_bytes: int
) -> NDArray[np.int64]:
    """The part [n] of every node of a symmetric graph, whose in-edges may be mapped: nodes, edges and `trained` nodes
    are balanced, and few edges cut."""
    degrees = np.diff(indptr)
    columns: list[Integers] = [np.broadcast_to(np.int64(1), len(degrees)), degrees]
    if trained.any():
        columns.append(trained.view(np.uint8))
    graph = RowGraph(indptr, sources, tuple(columns))
    max_pairs = max(1 << 20, (memory_bytes - _CHUNK_BYTES - _BYTES_PER_NODE * len(degrees)) // BYTES_PER_PAIR)
    parts = _divide(graph, num_parts, max_pairs, derive(seed, "stream"))
    return _all_used(parts, num_parts).astype(np.int64)


def _divide(graph: RowGraph, num_parts: int, max_pairs: int, seed: int) -> NDArray[np.int32]:
    enough = max(_COARSE_NODES, _COARSE_NODES_A_PART * num_parts)
    levels, clusters = [graph], []
    while levels[-1].num_nodes > enough:
        level = len(clusters)
        fineness = _FINENESS[min(level, len(_FINENESS) - 1)]
        limit = len(graph.columns) / (num_parts * fineness)
        labels = Clustering(levels[-1], limit, seed, above_chance=level > 0).propagate(_CLUSTER_PASSES)
        coarse, found = contract(levels[-1], labels, max_pairs, seed)
        if coarse.num_nodes > 0.95 * levels[-1].num_nodes:
            break
        levels.append(coarse)
        clusters.append(found)
    caps = [caps_of(level, num_parts, TOLERANCE) for level in levels]
    parts = first_parts(levels[-1], np.arange(levels[-1].num_nodes), num_parts, caps[-1], seed)
    for level in range(len(clusters) - 1, -1, -1):
        parts = parts[clusters[level]]
        Refinement(levels[level], parts, num_parts, caps[level], seed).restream(_REFINING_PASSES)
    return parts


def _all_used(parts: NDArray[np.int32], num_parts: int) -> NDArray[np.int32]:
    """Give every empty part a node of the part with most."""
    sizes = np.bincount(parts, minlength=num_parts)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        parts[np.flatnonzero(parts == largest)[-1]] = empty
        sizes[largest] -= 1
        sizes[empty] += 1
    return parts
