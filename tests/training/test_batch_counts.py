"""Batches are as large as was said before any was made."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nfdist import settings
from nfdist.graph.counts import read_counts
from nfdist.store.store import Store
from nfdist.training.batch_counts import count_batch
from nfdist.training.sampling import Pools, Position
from nfdist.training.walks import Walks
from tests.training.building import build_partition, epoch


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graph") / "partition")


def counted(graph: Path, *overrides: str, ranks: int = 1):  # type: ignore[no-untyped-def]
    config = settings.parse({"relation": {"order": 1}}, list(overrides))
    return count_batch(config, read_counts(graph, 1), ranks)


@pytest.mark.parametrize("batch_nodes", [30, 60, 100])
def test_uniform_batches(batch_nodes: int, graph: Path) -> None:
    store = Store.open(graph)
    sampler = Pools([torch.arange(store.num_nodes)], None, 1, batch_nodes, 0)
    made = [batches[0] for _ in range(1) for batches in epoch(sampler, Position())[0]]
    edges = [store.induced(ids, loops=True).num_edges for ids in made]
    found = counted(graph, f"train.batch_nodes={batch_nodes}")
    assert found.batches == len(made)
    assert found.nodes == pytest.approx(sum(map(len, made)) / len(made))
    assert found.edges[0] == pytest.approx(sum(edges) / len(edges), rel=0.25)
    assert found.copies == 0


def test_the_whole_graph_and_its_division(graph: Path) -> None:
    store = Store.open(graph)
    whole = counted(graph)
    assert whole.edges[0] == pytest.approx(store.induced(torch.arange(store.num_nodes), loops=True).num_edges, rel=0.02)
    scopes = ("attention.scope=world", "relation.scope=world")
    third = counted(graph, *scopes, ranks=3)
    part = store.parts[0]
    assert third.nodes == max(one.num_nodes for one in store.parts)
    assert third.edges[0] == pytest.approx(whole.edges[0] / 3, rel=0.05)
    assert third.copies == pytest.approx(part.halo_nodes, rel=0.1)


def test_batches_that_reach_those_of_other_ranks(graph: Path) -> None:
    store = Store.open(graph)
    taken = torch.randperm(store.num_nodes, generator=torch.Generator().manual_seed(0))[:100]
    found = counted(graph, "train.batch_nodes=50", "relation.scope=world", ranks=2)
    edges = store.induced(taken[:50], taken, loops=True)
    scale = found.nodes / 50
    assert found.edges[0] == pytest.approx(edges.num_edges * scale**2, rel=0.3)
    assert found.copies == pytest.approx(int((edges.sources.unique() >= 50).sum()) * scale, rel=0.3)


def test_walks_from_training_nodes_have_these_first(graph: Path) -> None:
    store, given = Store.open(graph), ["train.batch_nodes=60", "train.sampling=walks", "train.batch_from=train"]
    roots = store.nodes_in_split("train")
    walks, found = Walks(store, 1, 60, 2, 0, roots), counted(graph, *given)
    batch = walks.take(Position())[0][0]
    assert found.batches == walks.batches(Position())
    assert 0.5 < found.labeled / len(np.intersect1d(batch, roots)) < 2


def test_walks_have_more_edges_than_chance(graph: Path) -> None:
    store = Store.open(graph)
    batches, _ = Walks(store, 1, 60, 2, 0).take(Position())
    edges = store.induced(batches[0], loops=True).num_edges
    found = counted(graph, "train.batch_nodes=60", "train.sampling=walks")
    assert len(batches[0]) <= found.nodes
    assert 0.5 < found.edges[0] / edges < 2
