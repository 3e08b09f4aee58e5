"""Walks follow edges, are drawn from the position alone, and an epoch is as long as one over all nodes."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nfdist.store.store import Store
from nfdist.training.sampling import Position
from nfdist.training.walks import Walks
from tests.evaluation.building import write_graph
from tests.training.building import build_partition, epoch

BATCH, LENGTH = 40, 3


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(build_partition(tmp_path_factory.mktemp("graph") / "partition"))


@pytest.mark.parametrize("ranks", [1, 2, 7])
def test_an_epoch_has_as_many_steps_as_visit_every_node_by_count(store: Store, ranks: int) -> None:
    walks = Walks(store, ranks, BATCH, LENGTH, seed=4)
    steps, after = epoch(walks, Position())
    assert len(steps) == walks.batches(Position()) == -(-store.num_nodes // (ranks * BATCH))
    assert after == Position(batch=len(steps), epoch=1)
    for batches in steps:
        assert len(batches) == ranks
        assert all(0 < len(batch) <= BATCH for batch in batches)
        assert all(torch.equal(batch, batch.unique()) for batch in batches)
    assert walks.progress(after) == 1.0


def test_a_step_is_a_function_of_seed_step_and_rank(store: Store) -> None:
    def batch(seed: int, step: int, rank: int) -> torch.Tensor:
        return Walks(store, 2, BATCH, LENGTH, seed).take(Position(batch=step))[0][rank]

    assert torch.equal(batch(0, 5, 1), batch(0, 5, 1))
    for other in ((1, 5, 1), (0, 6, 1), (0, 5, 0)):
        assert not torch.equal(batch(0, 5, 1), batch(*other))


@pytest.mark.parametrize("ranks", [2, 3])
def test_what_resumes_within_an_epoch_goes_on_with_the_same_steps(store: Store, ranks: int) -> None:
    whole, end = epoch(Walks(store, 2, 20, LENGTH, seed=1), Position(epoch=3, batch=20))
    position = Position(epoch=3, batch=20)
    for _ in range(4):
        _, position = Walks(store, 2, 20, LENGTH, seed=1).take(position)
    rest, after = epoch(Walks(store, ranks, 20, LENGTH, seed=1), position)
    for mine, wanted in zip(rest, whole[4:], strict=False):
        assert all(torch.equal(*pair) for pair in zip(mine, wanted, strict=False))
    assert after.epoch == end.epoch == 4
    assert len(rest) == -(-(store.num_nodes - 4 * 2 * 20) // (ranks * 20))


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_epoch_of_walks_from_some_nodes_has_as_many_walks_as_these(store: Store, ranks: int) -> None:
    roots = torch.arange(5, store.num_nodes, 7)
    walks = Walks(store, ranks, 20, LENGTH, 4, roots)
    steps, after = epoch(walks, Position())
    assert len(steps) == walks.batches(Position()) == -(-len(roots) // (ranks * (20 // (LENGTH + 1))))
    assert walks.progress(after) == 1.0


def test_walks_from_some_nodes_start_there(store: Store) -> None:
    graph = store.induced(torch.arange(store.num_nodes))
    roots = graph.in_degrees.argsort()[:3]  # from where few are reached
    reached = set(roots.tolist()) | set(graph.sources[torch.isin(graph.targets, roots)].tolist())
    assert len(reached) < store.num_nodes // 2
    walks = Walks(store, 1, BATCH, 1, 0, roots)
    batches = [walks.take(Position(batch=step))[0][0] for step in range(20)]
    assert {node for batch in batches for node in batch.tolist()} == reached


def test_every_node_is_met_sooner_or_later(store: Store) -> None:
    walks = Walks(store, 1, BATCH, LENGTH, seed=0)
    met = torch.cat([walks.take(Position(batch=step))[0][0] for step in range(400)])
    assert len(met.unique()) == store.num_nodes


def test_every_move_is_along_an_edge_and_each_as_likely(store: Store) -> None:
    walks = Walks(store, 1, BATCH, LENGTH, seed=0)
    graph = store.induced(torch.arange(store.num_nodes))
    for node in (0, 100, store.num_nodes - 1):
        heard = graph.sources[graph.indptr[node] : graph.indptr[node + 1]].tolist()
        chances = (np.arange(12 * max(len(heard), 1)) + 0.5) / (12 * max(len(heard), 1))
        moved = walks._moved(np.full(len(chances), node), chances).tolist()
        assert sorted(moved) == sorted((heard or [node]) * 12)


def test_a_walk_stays_where_nobody_is_heard(tmp_path: Path) -> None:
    lonely = Store.open(write_graph(tmp_path / "graph", "no edges", 2))
    walks = Walks(lonely, 1, BATCH, LENGTH, seed=0)
    assert len(walks.take(Position())[0][0]) <= BATCH // (LENGTH + 1)
