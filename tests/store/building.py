"""Small graphs for the tests of the store, and the dense truth to compare with."""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from nfdist.store.manifest import Manifest
from nfdist.store.source_graph import SourceGraph
from nfdist.store.writing import EDGES_AT_ONCE, write_partition

RECIPE = {"source": "a test", "method": "random", "parts": 3, "seed": 0, "options": {}, "nfdist": "0", "notes": []}


def build_graph(
    num_nodes: int = 60,
    num_edges: int = 400,
    ids: str = "integers",
    features: str = "float32",
    questions: int = 0,
    seed: int = 0,
) -> SourceGraph:
    """Random edges with self-loops; the last ten nodes have no edge."""
    generator = np.random.default_rng(seed)
    pairs = generator.integers(0, max(1, num_nodes - 10), size=(num_edges, 2))
    pairs = np.unique(np.vstack([pairs, [[1, 1], [4, 4]]]) if num_edges else pairs, axis=0)
    table: Any = generator.standard_normal((num_nodes, 5)).astype("float16" if features == "float16" else "float32")
    if features == "sparse":
        table = scipy.sparse.csr_array(table * (generator.random(table.shape) < 0.3))
    names = generator.permutation(num_nodes) * 10**11 - 7 * 10**12
    labels = generator.integers(-1, 4, num_nodes)
    if questions:
        labels = generator.integers(-1, 2, (num_nodes, questions))
    return SourceGraph(
        name="small",
        original_ids=names if ids == "integers" else np.array([f"käse-{name}" for name in names], dtype=object),
        sources=pairs[:, 0],
        targets=pairs[:, 1],
        features=table,
        labels=labels,
        split=generator.integers(0, 4, num_nodes).astype(np.int8),
        task="multi" if questions else "single",
        num_classes=questions or 4,
    )


def in_edges(graph: SourceGraph) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    shape = (graph.num_nodes, graph.num_nodes)
    matrix = scipy.sparse.csr_array((np.ones(len(graph.sources)), (graph.targets, graph.sources)), shape=shape)
    matrix.sum_duplicates()
    return matrix.indptr, matrix.indices


def write(
    directory: Path, graph: SourceGraph, num_parts: int = 3, assignment: Any = None, edges_at_once: int = EDGES_AT_ONCE
) -> Manifest:
    if assignment is None:
        assignment = np.random.default_rng(9).integers(0, num_parts, graph.num_nodes)
    indptr, sources = in_edges(graph)
    return write_partition(
        directory, graph, indptr, sources, assignment, num_parts, RECIPE, directed=True, edges_at_once=edges_at_once
    )


def dense(graph: SourceGraph) -> Any:
    """A[t, s] = 1 for an edge s → t, over the rows of the source."""
    matrix = np.zeros((graph.num_nodes, graph.num_nodes), dtype=bool)
    matrix[graph.targets, graph.sources] = True
    return matrix


def dense_features(graph: SourceGraph) -> Any:
    return graph.features.toarray() if scipy.sparse.issparse(graph.features) else graph.features
