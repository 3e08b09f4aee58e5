"""amazon2m-like: Amazon2M's shape, reproducible, and a graph that is worth using."""

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray

from nfdist.partitioning.sources import SourceCounts, SourceOptions, counts, load
from nfdist.store.source_graph import TEST, TRAIN, SourceGraph

SCALE = 0.005


@pytest.fixture(scope="module")
def graph() -> SourceGraph:
    return load("amazon2m-like", SourceOptions(scale=SCALE))


def degrees_of(graph: SourceGraph) -> NDArray[np.int64]:
    return np.bincount(np.concatenate([graph.sources, graph.targets]), minlength=graph.num_nodes)


def test_counts_are_amazon2ms_at_every_scale(graph: SourceGraph) -> None:
    assert counts("amazon2m-like", SourceOptions()) == SourceCounts(2_449_029, 61_859_140, 100, None, "float32")
    found = counts("amazon2m-like", SourceOptions(scale=SCALE))
    assert (found.nodes, found.edges) == (graph.num_nodes, len(graph.sources)) == (12245, 309292)
    assert degrees_of(graph).mean() == pytest.approx(2 * 61_859_140 / 2_449_029, rel=1e-4)


def test_edges_are_unique_and_without_loops(graph: SourceGraph) -> None:
    low, high = np.minimum(graph.sources, graph.targets), np.maximum(graph.sources, graph.targets)
    assert (low < high).all()
    assert len(np.unique(low * np.int64(graph.num_nodes) + high)) == len(low)


def test_degrees_have_a_heavy_tail_and_classes_uneven_sizes(graph: SourceGraph) -> None:
    degrees = np.sort(degrees_of(graph))
    assert degrees[-1] > 20 * degrees.mean()
    assert degrees[len(degrees) // 2] < 0.75 * degrees.mean()
    sizes = np.bincount(graph.labels, minlength=47)
    assert graph.num_classes == len(sizes) == 47
    assert sizes.min() > 0
    assert sizes.max() > 10 * np.median(sizes)
    assert np.bincount(graph.split).tolist() == [0, 6122, 3062, 3061]


def test_a_seed_repeats_it_and_another_does_not(graph: SourceGraph) -> None:
    again, other = (load("amazon2m-like", SourceOptions(scale=SCALE, seed=seed)) for seed in (0, 1))
    for name in ("sources", "targets", "features", "labels", "split"):
        assert np.array_equal(getattr(graph, name), getattr(again, name)), name
        assert not np.array_equal(getattr(graph, name), getattr(other, name)), name


@pytest.mark.parametrize("scale", [1e-6, 1e-5, 1e-4])
def test_small_graphs_are_whole(scale: float) -> None:
    graph = load("amazon2m-like", SourceOptions(scale=scale))
    assert graph.num_nodes == counts("amazon2m-like", SourceOptions(scale=scale)).nodes
    assert graph.num_classes == 47


def test_the_graph_tells_ten_points_more_than_features_alone(graph: SourceGraph) -> None:
    ends = np.concatenate([graph.sources, graph.targets]), np.concatenate([graph.targets, graph.sources])
    adjacency = scipy.sparse.csr_array((np.ones(len(ends[0]), np.float32), ends), shape=(graph.num_nodes,) * 2)
    once = adjacency @ graph.features / np.maximum(degrees_of(graph), 1)[:, None]
    twice = adjacency @ once / np.maximum(degrees_of(graph), 1)[:, None]
    alone = max(accuracy(graph.features, graph, hidden) for hidden in (0, 64))
    assert 0.3 < alone < accuracy(np.hstack([graph.features, once, twice]), graph, 0) - 0.10
    assert alone < accuracy(twice, graph, 0) - 0.10


def accuracy(features: NDArray[Any], graph: SourceGraph, hidden: int) -> float:
    """Test accuracy of a linear model or, with hidden channels, of a perceptron."""
    import torch

    from nfdist import seeds

    rows = torch.from_numpy((features - features.mean(axis=0)) / features.std(axis=0)).float()
    labels, split = torch.from_numpy(graph.labels), torch.from_numpy(graph.split)
    widths = [rows.shape[1], *([hidden] if hidden else []), 47]
    draws = seeds.generator(0, "weights")
    weights = [(torch.randn(i, o, generator=draws) * i**-0.5).requires_grad_() for i, o in itertools.pairwise(widths)]

    def predict(inputs: torch.Tensor) -> torch.Tensor:
        first = inputs.matmul(weights[0])
        return first.relu().matmul(weights[1]) if hidden else first

    optimizer = torch.optim.Adam(weights, lr=0.02, weight_decay=1e-4)
    best = 0.0
    for step in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(predict(rows[split == TRAIN]), labels[split == TRAIN]).backward()
        optimizer.step()
        if step % 5 == 4:
            hits = predict(rows[split == TEST]).argmax(dim=1) == labels[split == TEST]
            best = max(best, hits.float().mean().item())
    return best
