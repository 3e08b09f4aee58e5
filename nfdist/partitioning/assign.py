"""Which node goes to which part."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nfdist import seeds
from nfdist.errors import PartitionError
from nfdist.partitioning.streaming import least_memory, stream_assign
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.metis import metis
from nfdist.store.source_graph import TRAIN, SourceGraph

STREAM_BYTES = 4 << 30  # for method stream where nobody says; the same on all hosts, so that the parts are


def assign(
    graph: SourceGraph,
    in_edges: Adjacency,
    num_parts: int,
    method: str,
    seed: int,
    symmetric: bool,
    memory_bytes: int | None = None,
    beside: Path | None = None,
) -> NDArray[np.int64]:
    """The part [n] of every row: by METIS or as a stream, with nodes, edges and training nodes balanced, or at random.

    A stream needs at most `memory_bytes` beside the graph itself, 4 GiB by default, or the least that it can do with.
    Files that METIS needs lie beside `beside` meanwhile.
    """
    check_parts(graph, num_parts)
    if num_parts == 1:
        return np.zeros(graph.num_nodes, dtype=np.int64)
    if method == "random" or in_edges.num_edges == 0:
        return seeds.numpy_generator(seed, "parts").permutation(graph.num_nodes) % num_parts
    both_ways = in_edges if symmetric else in_edges.symmetrized()
    if method == "stream":
        trained = graph.split == TRAIN
        ends, sources = both_ways.indptr.numpy(), both_ways.sources.numpy()
        room = max(memory_bytes or STREAM_BYTES, least_memory(graph.num_nodes))
        return stream_assign(ends, sources, trained, num_parts, seed, room)
    degrees = both_ways.in_degrees.numpy()
    weights = np.stack([np.ones_like(degrees), degrees, graph.split == TRAIN], 1).astype(np.int64)
    found = metis(both_ways, num_parts, weights[:, : 2 + bool(weights[:, 2].any())], beside)
    if len(np.unique(found)) < num_parts:  # METIS leaves parts of very small graphs empty
        return np.arange(graph.num_nodes) * num_parts // graph.num_nodes
    return found


def check_parts(graph: SourceGraph, num_parts: int) -> None:
    """Refuse more parts than there are nodes."""
    if not 1 <= num_parts <= max(1, graph.num_nodes):
        raise PartitionError(
            f"--parts must be between 1 and the {graph.num_nodes:,} nodes of the graph, got {num_parts}"
        )


def read_assignment(path: Path, graph: SourceGraph, num_parts: int) -> NDArray[np.int64]:
    """The parts that another tool chose: a text file with one number a line, in the order of the source's nodes."""
    try:
        parts = np.loadtxt(path, dtype=np.int64, ndmin=1)
    except OSError as error:
        raise PartitionError(f"assignment {path} cannot be read: {error.strerror or error}") from None
    except (ValueError, OverflowError) as error:
        raise PartitionError(f"assignment {path} must hold one part number a line: {error}") from None
    if parts.shape != (graph.num_nodes,):
        raise PartitionError(f"assignment {path} has {parts.size:,} numbers, the graph has {graph.num_nodes:,} nodes")
    if len(parts) and (parts.min() < 0 or parts.max() >= num_parts):
        bad = parts.min() if parts.min() < 0 else parts.max()
        raise PartitionError(f"assignment {path} names part {bad}, --parts {num_parts} allows 0 to {num_parts - 1}")
    return parts
