"""Rows are tied to labels as a product of matrices says, however they are counted and cut into chunks."""

import numpy as np
import pytest

from nfdist import seeds
from nfdist.partitioning.multilevel import row_graph as module
from nfdist.partitioning.multilevel.row_graph import RowGraph, summed, sums_before
from tests.partitioning.multilevel.graphs import clustered, row_graph, symmetric


@pytest.mark.parametrize("num_labels", [3, 500])  # by a table, and by sorting
@pytest.mark.parametrize("weighted", [False, True])
def test_ties_to_labels_are_sums_over_neighbors(num_labels: int, weighted: bool) -> None:
    graph = symmetric([0, 0, 1, 2, 3, 4], [1, 2, 2, 3, 3, 0], 6)  # with a loop at 3, and nothing at 5
    labels = np.array([1, 0, 2, 1, 2, 0], np.int32) * (num_labels // 3)
    weights = np.arange(1, graph.num_edges + 1) if weighted else np.ones(graph.num_edges, np.int64)
    dense = np.zeros((6, num_labels), np.int64)
    for source, target, weight in zip(graph.sources.tolist(), graph.targets.tolist(), weights, strict=True):
        dense[target, labels[source]] += weight * (source != target)
    rows = row_graph(graph)
    rows = RowGraph(rows.indptr, rows.sources, rows.columns, weights if weighted else None)
    ties = rows.label_strengths(slice(2, 6), labels, num_labels)
    found = np.zeros((4, num_labels), np.int64)
    found[ties.row, ties.label] = ties.strength
    assert np.array_equal(found, dense[2:])
    assert np.array_equal(ties.to_own(labels[2:]), dense[np.arange(2, 6), labels[2:]])
    label, strength = ties.strongest(4, ties.strength)
    assert np.array_equal(strength, dense[2:].max(1))
    assert label[3] == -1
    assert np.array_equal(dense[np.arange(2, 5), label[:3]], strength[:3])


def test_chunks_cover_all_rows_once_in_an_order_of_the_seed() -> None:
    graph = row_graph(clustered())
    groups = list(graph.chunk_groups(0, "a pass"))
    rows = np.concatenate([np.arange(chunk.start, chunk.stop) for group in groups for chunk in group])
    assert np.array_equal(np.sort(rows), np.arange(graph.num_nodes))
    assert groups == list(graph.chunk_groups(0, "a pass"))
    assert groups != list(graph.chunk_groups(1, "a pass"))


def test_the_cut_and_the_loads_are_those_of_all_edges_and_nodes() -> None:
    graph = clustered(4, 50)
    parts = (np.arange(graph.num_nodes) % 3).astype(np.int32)
    between = int((parts[graph.sources] != parts[graph.targets]).sum())
    loops = int((graph.sources == graph.targets).sum())
    assert row_graph(graph).cut(parts) == (between, graph.num_edges - loops)
    degrees = np.bincount(parts, graph.in_degrees.numpy())
    assert np.array_equal(row_graph(graph).loads(parts, 3), np.stack([np.bincount(parts), degrees], 1))


def test_a_node_of_too_many_edges_is_looked_at_in_part_and_weighs_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EDGES_OF_A_ROW", 100)
    monkeypatch.setattr(module, "EDGES_AT_ONCE", 100)
    graph = row_graph(symmetric([0] * 999, np.arange(1, 1000), 1000))
    ties = graph.label_strengths(slice(0, 1), (np.arange(1000) // 500).astype(np.int32), 2)
    assert ties.strength == pytest.approx([499, 500], rel=0.03)


def test_sums_by_key_and_before_each_row() -> None:
    draws = seeds.numpy_generator(0, "keys")
    keys, weights = draws.integers(9, size=50), draws.integers(1, 5, size=50)
    for given in (None, weights):
        unique, sums = summed(keys.copy(), given)
        assert np.array_equal(unique, np.unique(keys))
        assert np.array_equal(sums, np.bincount(keys, given)[unique])
    groups = np.array([-1, -1, 4, 4, 4, 7])
    assert sums_before(groups, np.array([1, 2, 3, 4, 5, 6])).tolist() == [0, 1, 0, 3, 7, 0]
    assert len(sums_before(groups[:0], weights[:0])) == 0
