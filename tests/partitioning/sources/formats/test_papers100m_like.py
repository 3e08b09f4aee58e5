"""papers100m-like: ogbn-papers100M's shape, the same in blocks of any workspace, and a graph that is worth using."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from nfdist.errors import PartitionError
from nfdist.partitioning.sources import SourceCounts, SourceOptions, counts, load
from nfdist.partitioning.sources.formats import papers100m_like
from nfdist.partitioning.sources.formats.papers100m_like import NAME
from nfdist.store.source_graph import TEST, TRAIN, VALID, SourceGraph

SCALE = 2e-4


@pytest.fixture(scope="module")
def graph() -> SourceGraph:
    """With every node labeled by its class, to see whether the graph follows them."""
    with patch.object(papers100m_like, "_LABELED", 1.0):
        return load(NAME, SourceOptions(scale=SCALE))


@pytest.mark.parametrize("scale", [2e-8, 4e-8, 1e-7, 1e-6, 1e-5, SCALE])
def test_every_citation_is_there_once_and_as_often_as_counted(scale: float) -> None:
    options = SourceOptions(scale=scale)
    graph, found = load(NAME, options), counts(NAME, options)
    pairs = graph.sources.astype(np.int64) * graph.num_nodes + graph.targets
    assert (found.nodes, found.edges) == (graph.num_nodes, len(np.unique(pairs))) == (graph.num_nodes, len(pairs))
    assert not (graph.sources == graph.targets).any()
    assert (graph.features.dtype, graph.features.shape[1], graph.num_classes) == (np.float16, 128, 172)


def test_counts_are_those_of_ogbn_papers100m() -> None:
    assert counts(NAME, SourceOptions()) == SourceCounts(111_059_956, 1_615_685_872, 128, None, "float16")
    with pytest.raises(PartitionError, match=r"scale 20 has 2,221,199,120 nodes: choose a scale below 19\.3"):
        counts(NAME, SourceOptions(scale=20))


def test_few_nodes_are_labeled_and_all_of_them_in_the_split() -> None:
    graph = load(NAME, SourceOptions(scale=1e-3))
    labeled = graph.labels >= 0
    assert labeled.mean() == pytest.approx(0.0139, abs=0.002)
    assert np.array_equal(labeled, graph.split != 0)
    shares = np.bincount(graph.split[labeled], minlength=4) / labeled.sum()
    assert shares[[TRAIN, VALID, TEST]] == pytest.approx([0.78, 0.08, 0.14], abs=0.04)


def test_degrees_have_a_heavy_tail_and_edges_and_features_follow_classes(graph: SourceGraph) -> None:
    degrees = np.sort(np.bincount(np.concatenate([graph.sources, graph.targets]), minlength=graph.num_nodes))
    assert degrees[-1] > 40 * degrees.mean()
    assert degrees[len(degrees) // 2] < 0.9 * degrees.mean()
    alike = (graph.labels[graph.sources] == graph.labels[graph.targets]).mean()
    shuffled = np.random.default_rng(0).permutation(graph.labels)
    assert alike > 4 * (shuffled[graph.sources] == shuffled[graph.targets]).mean()
    largest = np.argmax(np.bincount(graph.labels))
    rows = graph.features.astype(np.float32)
    own, others = rows[graph.labels == largest], rows[graph.labels != largest]
    assert np.linalg.norm(own[::2].mean(0) - own[1::2].mean(0)) < np.linalg.norm(own.mean(0) - others.mean(0))


def test_a_seed_repeats_it_and_another_does_not() -> None:
    options = SourceOptions(scale=1e-5)
    graph, again, other = (load(NAME, replace(options, seed=seed)) for seed in (0, 0, 1))
    for name in ("sources", "targets", "features"):
        assert np.array_equal(getattr(graph, name), getattr(again, name)), name
        assert not np.array_equal(getattr(graph, name), getattr(other, name)), name
