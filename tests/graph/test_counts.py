"""Counts of a graph agree with the graph."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nfdist.graph.counts import GraphCounts, read_counts
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from tests.training.building import build_partition


def test_patterns_are_those_of_the_graph(tmp_path: Path) -> None:
    """Of fewer nodes than are sampled, each is looked at."""
    source = tmp_path / "ring.npz"
    nodes = np.arange(150)
    np.savez(
        source, edge_index=np.stack([nodes, (nodes + 1) % 150]), feat=np.ones((150, 3), np.float32), label=nodes % 2
    )
    partition(Recipe.build(str(source), {"parts": 3, "out": str(tmp_path / "ring"), "method": "random"}))
    counts = read_counts(tmp_path / "ring", 3)
    assert counts.patterns == (3 * 150, 5 * 150, 7 * 150)
    store = Store.open(tmp_path / "ring")
    exact = [Hops.open(store, 3).induced(hop, torch.arange(150)).num_edges for hop in (1, 2, 3)]
    assert list(counts.patterns) == exact
    assert (counts.nodes, counts.edges, counts.features, counts.outputs) == (150, 300, 3, 2)


def test_where_parts_are_elsewhere_no_path_is_forgotten(tmp_path: Path) -> None:
    store = Store.open(build_partition(tmp_path / "graph"))
    counts = GraphCounts.of(store.manifest)
    known = counts.with_patterns(store, 2).patterns
    some = Store(store.directory, store.manifest, {0: store._part(0)})
    assert counts.with_patterns(some, 2).patterns[1] >= 0.9 * known[1]
    assert counts.with_patterns(store, 0) == counts


def test_entries_of_sparse_rows_are_counted(tmp_path: Path) -> None:
    counted = np.array([3, 0, 5, 2] * 500)
    words = np.concatenate([np.arange(count) for count in counted])
    np.savez(
        tmp_path / "words.npz",
        edge_index=np.array([[0], [1]]),
        feat_indptr=np.concatenate([[0], np.cumsum(counted)]),
        feat_indices=words,
        feat_data=np.ones(len(words), np.float32),
        feat_shape=np.array([2000, 900]),
        label=np.arange(2000) % 3,
    )
    given = {"parts": 2, "out": str(tmp_path / "words"), "method": "random"}
    partition(Recipe.build(str(tmp_path / "words.npz"), given))
    counts = read_counts(tmp_path / "words", 1)
    assert counts.entries is not None
    assert counts.entries == pytest.approx(2.5, rel=0.2)  # headers of files count as some entries
    assert counts.row_bytes(4) < 4 * 900
