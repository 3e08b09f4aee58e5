"""Clusters keep to their limit, and are those of the graph."""

import numpy as np
import pytest

from nfdist.partitioning.multilevel.clustering import Clustering
from tests.partitioning.multilevel.graphs import clustered, row_graph, symmetric


@pytest.mark.parametrize("above_chance", [False, True])
def test_clusters_keep_to_the_limit_and_hold_most_edges(above_chance: bool) -> None:
    graph = clustered(8, 100, strays=0.1)
    rows = row_graph(graph)
    limit = 2 / 8 * 1.3
    labels = Clustering(rows, limit, seed=0, above_chance=above_chance).propagate(6)
    masses = np.bincount(labels, rows.weights(slice(0, rows.num_nodes)) @ (1 / rows.totals()))
    assert masses.max() <= limit
    inside = labels[graph.sources.numpy()] == labels[graph.targets.numpy()]
    assert inside.mean() > 0.5  # of nine tenths at best, and an eighth by chance


def test_leaves_of_a_full_star_and_nodes_without_edges_are_put_together() -> None:
    for graph in (symmetric([0] * 1999, np.arange(1, 2000), 2000), symmetric([], [], 2000)):
        labels = Clustering(row_graph(graph), 2 / 20, seed=0).propagate(5)
        sizes = np.bincount(labels)
        assert sizes.max() <= 2000 / 5  # a leaf has less than its share of the edges
        assert (sizes > 0).sum() < 300


def test_no_two_nodes_swap_labels_forever() -> None:
    pairs = symmetric(np.arange(0, 2000, 2), np.arange(1, 2000, 2), 2000)
    labels = Clustering(row_graph(pairs), 2 / 500, seed=0).propagate(3)
    assert np.array_equal(labels[::2], labels[1::2])
