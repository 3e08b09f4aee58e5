"""METIS balances what training and evaluation wait for: edges and training nodes, not only nodes."""

import numpy as np
import torch
from numpy.typing import NDArray

from nfdist.partitioning.assign import assign
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.source_graph import TRAIN, SourceGraph
from tests.needs import needs_dgl

HALF = 200


def lopsided() -> tuple[SourceGraph, Adjacency]:
    """Two rings joined by one edge: the second has ten times the edges of the first and all training nodes."""
    nodes: NDArray[np.int64] = np.arange(HALF)
    ends = [(nodes, (nodes + step) % HALF) for step in (1, 2)]
    ends += [(HALF + nodes, HALF + (nodes + step) % HALF) for step in range(1, 21)]
    ends.append((np.array([0]), np.array([HALF])))
    sources, targets = (np.concatenate(side) for side in zip(*ends, strict=True))
    split = np.where(np.arange(2 * HALF) < HALF, 0, TRAIN).astype(np.int8)
    graph = SourceGraph(
        name="rings",
        original_ids=np.arange(2 * HALF),
        sources=sources,
        targets=targets,
        features=np.ones((2 * HALF, 1), np.float32),
        labels=np.zeros(2 * HALF, np.int64),
        split=split,
        task="single",
        num_classes=1,
    )
    edges = Adjacency.from_edges(torch.from_numpy(sources), torch.from_numpy(targets), 2 * HALF).symmetrized()
    return graph, edges


@needs_dgl
def test_metis_divides_edges_and_training_nodes_evenly_where_the_smallest_cut_would_not() -> None:
    graph, edges = lopsided()
    parts = assign(graph, edges, 2, "metis", seed=0, symmetric=True)
    degrees = edges.in_degrees.numpy()
    for part in (0, 1):
        assert 0.35 < (parts == part).mean() < 0.65
        assert 0.35 < degrees[parts == part].sum() / degrees.sum() < 0.65
        assert 0.35 < (graph.split[parts == part] == TRAIN).sum() / HALF < 0.65


def test_random_parts_follow_the_seed_and_differ_by_one_node_at_most() -> None:
    graph, edges = lopsided()
    one, again, other = (assign(graph, edges, 7, "random", seed, symmetric=True) for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    sizes = np.bincount(one, minlength=7)
    assert sizes.max() - sizes.min() <= 1
