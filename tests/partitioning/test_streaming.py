"""A streamed partition is balanced, uses every part, repeats, and cuts about what METIS cuts."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from nfdist import seeds
from nfdist.errors import PartitionError
from nfdist.partitioning.streaming import TOLERANCE, least_memory, stream_assign
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.metis import metis
from tests.needs import needs_dgl
from tests.partitioning.multilevel.graphs import clustered, cut, symmetric, tree

MEMORY = 1 << 30


def divide(
    graph: Adjacency, num_parts: int, seed: int = 0, trained: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    trained = np.zeros(graph.num_nodes, np.bool_) if trained is None else trained
    return stream_assign(graph.indptr.numpy(), graph.sources.numpy(), trained, num_parts, seed, MEMORY)


def columns(graph: Adjacency, trained: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    return [np.ones(graph.num_nodes, np.int64), graph.in_degrees.numpy(), trained.astype(np.int64)]


@needs_dgl
@pytest.mark.parametrize(("make", "num_parts"), [(clustered, 4), (clustered, 13), (tree, 4), (tree, 13)])
def test_parts_are_balanced_and_cut_about_what_metis_cuts(make: Callable[[], Adjacency], num_parts: int) -> None:
    graph = make()
    trained = np.arange(graph.num_nodes) < graph.num_nodes // 5
    weights = columns(graph, trained)
    parts = divide(graph, num_parts, trained=trained)
    for column in weights:
        loads, mean = np.bincount(parts, column, num_parts), column.sum() / num_parts
        assert loads.max() <= np.ceil(max(TOLERANCE * mean, mean + column.max()))
    theirs = metis(graph, num_parts, np.stack(weights, 1))
    assert cut(graph, parts) <= 1.25 * cut(graph, theirs)


def test_the_same_seed_gives_the_same_parts_from_memory_and_from_mapped_files(tmp_path: Path) -> None:
    graph = clustered(8)
    indptr, sources, trained = graph.indptr.numpy(), graph.sources.numpy(), np.arange(graph.num_nodes) % 3 == 0
    np.save(tmp_path / "indptr.npy", indptr)
    np.save(tmp_path / "sources.npy", sources)
    mapped_indptr, mapped = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("indptr", "sources"))
    one = stream_assign(indptr, sources, trained, 5, 7, MEMORY)
    assert np.array_equal(one, stream_assign(mapped_indptr, mapped, trained, 5, 7, MEMORY))
    assert np.array_equal(one, stream_assign(indptr.astype(np.int64), sources.astype(np.int64), trained, 5, 7, MEMORY))
    assert not np.array_equal(one, stream_assign(indptr, sources, trained, 5, 8, MEMORY))


def star(num_nodes: int) -> Adjacency:
    return symmetric([0] * (num_nodes - 1), np.arange(1, num_nodes), num_nodes)


ODD = {
    "no edges": symmetric([], [], 1500),
    "one node": symmetric([], [], 1),
    "loops alone": symmetric(np.arange(1200), np.arange(1200), 1200),
    "star": star(1500),
    "pairs": symmetric(np.arange(0, 1600, 2), np.arange(1, 1600, 2), 1600),
    "chain": symmetric(np.arange(1499), np.arange(1, 1500), 1500),
    "chain with loops": symmetric([*range(1499), *range(1500)], [*range(1, 1500), *range(1500)], 1500),
    "complete": symmetric(*np.divmod(np.arange(3600), 60), 60),
    "seven nodes": star(7),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("num_parts", [1, 2, 7])
def test_odd_graphs_have_even_parts_and_all_are_used(name: str, num_parts: int) -> None:
    graph = ODD[name]
    if num_parts > graph.num_nodes:
        pytest.skip("more parts than nodes are refused before")
    parts = divide(graph, num_parts)
    sizes = np.bincount(parts, minlength=num_parts)
    assert sizes.min() > 0
    assert sizes.max() <= np.ceil(TOLERANCE * graph.num_nodes / num_parts) + 1
    if name.startswith("chain"):
        assert cut(graph, parts) <= 0.02 * graph.num_nodes
    if name in ("pairs", "loops alone"):
        assert cut(graph, parts) <= 0.01 * graph.num_nodes


def test_as_many_parts_as_nodes_have_one_each() -> None:
    graph = symmetric(np.arange(99), np.arange(1, 100), 100)
    assert sorted(divide(graph, 100)) == list(range(100))


def test_a_sampled_coarse_graph_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = clustered(16, 100)
    whole = cut(graph, divide(graph, 4))
    monkeypatch.setattr("nfdist.partitioning.streaming.BYTES_PER_PAIR", MEMORY // 4000)
    monkeypatch.setattr("nfdist.partitioning.streaming._PAIRS_AT_LEAST", 1)
    assert cut(graph, divide(graph, 4)) <= 1.4 * whole


def test_too_little_memory_is_refused_with_what_is_needed() -> None:
    graph = symmetric([0], [1], 2)
    trained = np.zeros(2, np.bool_)
    with pytest.raises(
        PartitionError, match=r"2 nodes by method stream needs \d+MiB, and there are 1MiB: give --memory"
    ):
        stream_assign(graph.indptr.numpy(), graph.sources.numpy(), trained, 2, 0, 1 << 20)
    assert least_memory(28_000_000) < 2 << 30


def test_training_nodes_are_even_where_they_are_all_of_one_cluster() -> None:
    graph = clustered(8, 200)
    trained = seeds.numpy_generator(0, "trained").random(graph.num_nodes) < np.linspace(0, 0.5, graph.num_nodes)
    counts = np.bincount(divide(graph, 6, trained=trained), trained, 6)
    assert counts.max() <= np.ceil(max(TOLERANCE * trained.sum() / 6, trained.sum() / 6 + 1))
