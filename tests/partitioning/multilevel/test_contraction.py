"""A contracted graph has the edges between clusters, as often as they are, and what the clusters weigh."""

import numpy as np
import pytest

from nfdist.partitioning.multilevel.contraction import contract
from nfdist.partitioning.multilevel.row_graph import RowGraph
from tests.partitioning.multilevel.graphs import clustered, row_graph


def dense(graph: RowGraph) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    matrix = np.zeros((graph.num_nodes, graph.num_nodes), np.int64)
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    weights = np.ones(graph.num_edges, np.int64) if graph.edge_weights is None else graph.edge_weights
    np.add.at(matrix, (targets, graph.sources), weights)
    np.fill_diagonal(matrix, 0)
    return matrix


def test_contraction_is_a_product_with_the_clusters_twice_in_a_row() -> None:
    graph = row_graph(clustered(5, 40))
    for seed in range(2):  # the second contracts the weighted graph of the first
        labels = (np.arange(graph.num_nodes) * 7 % (40 if seed == 0 else 9)).astype(np.int32)
        coarse, clusters = contract(graph, labels, 1 << 20, seed)
        assert np.array_equal(clusters, np.unique(labels, return_inverse=True)[1])
        member = np.eye(coarse.num_nodes, dtype=np.int64)[clusters]
        expected = member.T @ dense(graph) @ member
        np.fill_diagonal(expected, 0)
        assert np.array_equal(dense(coarse), expected)
        assert np.array_equal(coarse.totals(), graph.totals())
        graph = coarse


def test_a_sample_of_the_edges_keeps_to_its_number_and_to_proportion(capsys: pytest.CaptureFixture[str]) -> None:
    graph = row_graph(clustered(10, 100, strays=0.5))
    labels = (np.arange(graph.num_nodes) % 4).astype(np.int32)
    whole, _ = contract(graph, labels, 1 << 20, 0)
    sample, _ = contract(graph, labels, 3000, 0)
    drawn = dense(sample).sum() / 2
    assert 2400 < drawn < 3600
    assert np.allclose(dense(sample) / drawn, dense(whole) / (dense(whole).sum() / 2), atol=0.03)
    assert capsys.readouterr().err == ""
    contract(graph, np.arange(graph.num_nodes, dtype=np.int32), 500, 0)
    assert "memory has room for 500 of some" in capsys.readouterr().err  # less than two edges a cluster
