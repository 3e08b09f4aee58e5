"""METIS, through the library that DGL ships."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.dgl_door import dgl


def metis(graph: Adjacency, num_parts: int, node_weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """The part [n] of every node of a symmetric graph, with few edges cut and each column of weights [n, w] balanced.

    DGL's own wrapper would symmetrize the graph once more, at twice the memory, and print; this calls what it calls.
    """
    library, backend = dgl().partition, dgl().backend
    arrays = (graph.indptr.long(), graph.sources.long(), torch.empty(0, dtype=torch.long))
    index = dgl().graph(("csc", arrays), num_nodes=graph.num_nodes)._graph
    weights = backend.to_dgl_nd(torch.from_numpy(np.ascontiguousarray(node_weights)).flatten())
    try:
        with _quiet():
            found = library._CAPI_DGLMetisPartition_Hetero(index, num_parts, weights, "k-way", True)
    except dgl().DGLError as error:
        raise PartitionError(f"METIS failed ({str(error).splitlines()[0]}): try --method random") from error
    assignment = dgl().utils.toindex(found).tousertensor().numpy()
    if len(assignment) != graph.num_nodes:
        raise PartitionError(
            f"METIS could not divide {graph.num_nodes:,} nodes into {num_parts} parts: try --method random"
        )
    return np.asarray(assignment, dtype=np.int64)


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
