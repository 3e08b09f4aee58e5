"""Parts of graphs that METIS cannot hold: edges stream by, and are never held as a whole.

    cluster     label propagation over the rows, a few passes, no cluster larger than a small fraction of a part
    contract    clusters become nodes; both again, in memory, until few are left
    divide      linear deterministic greedy, restreamed, from several orders
    refine      back through the levels: each row goes to the part it is tied to most and that has room

Only arrays with a number a node are held, and a coarse graph of limited size. Edges are read a chunk at a time, in
about a dozen passes.
"""

import numpy as np
from numpy.typing import NDArray

from nfdist import seeds
from nfdist.errors import PartitionError
from nfdist.memory import format_bytes
from nfdist.partitioning.multilevel.clustering import Clustering
from nfdist.partitioning.multilevel.contraction import BYTES_PER_PAIR, contract
from nfdist.partitioning.multilevel.first_parts import first_parts
from nfdist.partitioning.multilevel.refinement import Refinement, caps_of
from nfdist.partitioning.multilevel.row_graph import Integers, RowGraph

TOLERANCE = 1.03  # of the mean, as METIS by default
# A cluster of the first level is 1 / 64 of a part or less, those of the next ones 1 / 16. With a level of 1 / 256
# before these the cut of amazon2m-like was a tenth larger, with 1 / 64 alone a fiftieth.
_FINENESS = (64, 16)
_COARSE_NODES, _COARSE_NODES_A_PART = 1024, 32  # so few need no further level
_FEWER = 0.9  # a level that leaves more of the nodes than this is not worth it, nor are others after it
_CLUSTER_PASSES, _REFINING_PASSES = 3, 4  # five passes of the first changed cuts by a fifteenth, either way
_BYTES_PER_NODE = 40  # labels, masses and weights, what parts are made of, and the parts
_FIXED_BYTES = 256 << 20  # the chunks that are worked on, scipy, and the coarse graph where it is small
_PAIRS_AT_LEAST = 1 << 20


def least_memory(num_nodes: int) -> int:
    """The bytes that `stream_assign` cannot do without, whatever the number of edges."""
    return _FIXED_BYTES + _BYTES_PER_NODE * num_nodes + BYTES_PER_PAIR * _PAIRS_AT_LEAST


def stream_assign(
    indptr: Integers, sources: Integers, trained: NDArray[np.bool_], num_parts: int, seed: int, memory_bytes: int
) -> NDArray[np.int64]:
    """The part [n] of every node of a symmetric graph, so that few edges are cut.

    Nodes, edges and `trained` nodes are balanced, and no part is empty. In-edges may be mapped from disk. The result
    depends on the arguments alone: `memory_bytes` decides how many edges of a large graph the coarse one is made of.
    """
    num_nodes = len(indptr) - 1
    assert 1 <= num_parts <= max(1, num_nodes)
    if num_parts == 1:
        return np.zeros(num_nodes, np.int64)
    needed = least_memory(num_nodes)
    if memory_bytes < needed:
        raise PartitionError(
            f"dividing {num_nodes:,} nodes by method stream needs {format_bytes(needed)}, and there are "
            f"{format_bytes(memory_bytes)}: give --memory {format_bytes(needed)} or more"
        )
    degrees = np.diff(indptr).astype(np.int32)
    columns: list[Integers] = [np.broadcast_to(np.int64(1), num_nodes), degrees]
    if trained.any():
        columns.append(trained.view(np.uint8))
    graph = RowGraph(indptr, sources, tuple(columns))
    max_pairs = (memory_bytes - _FIXED_BYTES - _BYTES_PER_NODE * num_nodes) // BYTES_PER_PAIR
    parts = _multilevel(graph, num_parts, max_pairs, seeds.derive(seed, "stream"))
    return _all_used(parts, num_parts).astype(np.int64)


def _multilevel(graph: RowGraph, num_parts: int, max_pairs: int, seed: int) -> NDArray[np.int32]:
    """Coarser and coarser graphs, the parts of the last, and these refined on every finer one."""
    levels: list[RowGraph] = [graph]
    clusters: list[NDArray[np.int32]] = []  # of every level but the last, the node of the next one
    while levels[-1].num_nodes > max(_COARSE_NODES, _COARSE_NODES_A_PART * num_parts):
        fineness = _FINENESS[min(len(clusters), len(_FINENESS) - 1)]
        limit = len(graph.columns) / (num_parts * fineness)
        clustering = Clustering(levels[-1], limit, seed, above_chance=len(clusters) > 0)
        coarse, cluster_of = contract(levels[-1], clustering.propagate(_CLUSTER_PASSES), max_pairs, seed)
        del clustering
        if coarse.num_nodes > _FEWER * levels[-1].num_nodes:
            break
        levels.append(coarse)
        clusters.append(cluster_of)
    caps = [caps_of(level, num_parts, TOLERANCE) for level in levels]
    parts = first_parts(levels[-1], num_parts, caps[-1], seed)
    while clusters:
        levels.pop()
        parts = parts[clusters.pop()]
        Refinement(levels[-1], parts, num_parts, caps[len(levels) - 1], seed).restream(_REFINING_PASSES)
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
