"""Contenders get the same graph: its edges, its features and its split, in the forms that other libraries take."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from contender_graph import ContenderGraph, FirstLayer, Rows
from numpy.typing import NDArray
from predict_twins import chosen_nodes, twins

from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> ContenderGraph:
    folder = tmp_path_factory.mktemp("graph")
    stream = np.random.default_rng(0)
    ends = stream.integers(0, 60, (2, 150))
    ends[1, :9] = ends[0, :9]  # some self-loops
    labels = stream.integers(0, 3, 60)
    np.savez(folder / "graph.npz", edge_index=ends, feat=stream.standard_normal((60, 4), np.float32), label=labels)
    given = {"parts": 3, "method": "random", "out": str(folder / "parts"), "split": "random:0.5/0.25/0.25"}
    partition(Recipe.build(str(folder / "graph.npz"), given))
    return ContenderGraph(folder / "parts")


def dense(ends: NDArray[np.int32], sources: NDArray[np.int32]) -> torch.Tensor:
    matrix = torch.zeros(len(ends) - 1, len(ends) - 1)
    for target, (start, stop) in enumerate(pairwise(ends)):
        for source in sources[start:stop]:
            matrix[target, source] += 1
    return matrix


def test_in_edges_are_those_of_the_partition_with_a_loop_each(graph: ContenderGraph) -> None:
    wanted = graph.store.induced(graph.everyone)
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes)
    matrix[wanted.targets.long(), wanted.sources.long()] = 1
    assert torch.equal(dense(*graph.in_edges(loops=False)), matrix)
    assert 0 < matrix.diagonal().sum() < graph.num_nodes
    assert torch.equal(dense(*graph.in_edges(loops=True)), matrix.fill_diagonal_(1))


def test_the_normalized_matrix_has_both_roots(graph: ContenderGraph) -> None:
    matrix = dense(*graph.in_edges(loops=True))
    root = matrix.sum(1).rsqrt()
    torch.testing.assert_close(graph.normalized.to_dense(), root[:, None] * matrix * root)


def test_splits_are_disjoint_and_scores_are_of_their_nodes(graph: ContenderGraph) -> None:
    every = torch.cat([graph.train, graph.valid, graph.test])
    assert torch.equal(every.sort().values, graph.everyone)
    answers = graph.labels.clone()
    answers[graph.test] += 1
    assert graph.scores(answers) == {"valid": 1.0, "test": 0.0}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_words_pass_the_same_map_as_dense_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(5, 7, generator=generator) * (torch.rand(5, 7, generator=generator) < 0.4)
    layer = FirstLayer(7, 3, sparse=True)
    assert layer.weight is not None
    torch.testing.assert_close(layer(Rows.of(rows.to_sparse_csr())), torch.relu(rows @ layer.weight))
    assert torch.equal(FirstLayer(7, 3, sparse=False)(Rows.of(rows.half())), rows.half().float())


def test_twins_are_test_nodes_by_other_ids_with_their_neighbors(graph: ContenderGraph) -> None:
    nodes = chosen_nodes(graph.store, 6)
    assert set(nodes.tolist()) <= set(graph.test.tolist())
    table = twins(graph.store, nodes)
    matrix = dense(*graph.in_edges(loops=False))
    for row, node in enumerate(nodes.tolist()):
        neighbors = graph.store.original_ids(matrix[node].nonzero()[:, 0])
        assert sorted(table["neighbors"][row].as_py()) == sorted(neighbors.tolist())
        np.testing.assert_array_equal(table["features"][row].as_py(), graph.store.take(nodes[row : row + 1])[0].numpy())
    assert min(table["id"].to_pylist()) >= graph.num_nodes
