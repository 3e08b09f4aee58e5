"""METIS, through the library that DGL ships or else through pymetis."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from nfdist.errors import ConfigError, PartitionError
from nfdist.log import notice
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.dgl_door import dgl


def metis(graph: Adjacency, num_parts: int, node_weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """The part [n] of every node of a symmetric graph, with few edges cut and each column of weights [n, w] balanced.

    pymetis balances one column, the first, which must be the one that matters most.
    """
    library = metis_library()
    if library is None:
        raise PartitionError("--method metis needs DGL or pymetis: pip install pymetis, or use --method stream")
    if library == "pymetis" and node_weights.shape[1] > 1:
        notice("METIS through pymetis balances the nodes of parts; their edges and training nodes may be uneven")
    found = (_through_dgl if library == "dgl" else _through_pymetis)(graph, num_parts, node_weights)
    if len(found) != graph.num_nodes:
        raise PartitionError(
            f"METIS could not divide {graph.num_nodes:,} nodes into {num_parts} parts: try --method stream"
        )
    return found


def metis_library() -> str | None:
    """The package through which METIS is called: "dgl", which balances several weights, "pymetis", or None."""
    try:
        dgl()
    except ConfigError:
        try:
            import pymetis  # noqa: F401
        except ImportError:
            return None
        return "pymetis"
    return "dgl"


def _through_dgl(graph: Adjacency, num_parts: int, node_weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Through what DGL's wrapper calls, which itself would symmetrize the graph again, at twice the memory."""
    library, backend = dgl().partition, dgl().backend
    arrays = (graph.indptr.long(), graph.sources.long(), torch.empty(0, dtype=torch.long))
    index = dgl().graph(("csc", arrays), num_nodes=graph.num_nodes)._graph
    weights = backend.to_dgl_nd(torch.from_numpy(np.ascontiguousarray(node_weights)).flatten())
    try:
        with _quiet():
            found = library._CAPI_DGLMetisPartition_Hetero(index, num_parts, weights, "k-way", True)
    except dgl().DGLError as error:
        raise _failed(error) from error
    return np.asarray(dgl().utils.toindex(found).tousertensor().numpy(), dtype=np.int64)


def _through_pymetis(graph: Adjacency, num_parts: int, node_weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices of 64 bits are taken as they are; of more than one weight pymetis would read the first numbers only."""
    import pymetis

    adjacency = pymetis.CSRAdjacency(graph.indptr.long().numpy(), graph.sources.long().numpy())
    weights = np.ascontiguousarray(node_weights[:, 0])
    try:
        with _quiet():
            found = pymetis.part_graph(num_parts, adjacency, vweights=weights, recursive=False)
    except RuntimeError as error:
        raise _failed(error) from error
    return np.asarray(found.vertex_part, dtype=np.int64)


def _failed(error: Exception) -> PartitionError:
    return PartitionError(f"METIS failed ({str(error).splitlines()[0]}): try --method stream")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library's own log line off stderr; it is written below Python, so the file itself is turned away."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
