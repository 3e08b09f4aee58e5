"""Ranks that hold different parts read the same rows and edges as one that holds them all."""

from pathlib import Path

import pytest
import torch

from nfdist.errors import WorldError
from nfdist.store.distributed import DistributedStore
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.world import World
from tests.store.building import build_graph, write
from tests.store.distributing import NODES, assert_same_edges, complaint, some_nodes
from tests.worlds import run_world


def read_rows(world: World, directory: str, holdings: list[list[int]]) -> None:
    """Every rank asks for other nodes, the last one for none."""
    shared, whole = DistributedStore(Store.open(directory, holdings[world.rank]), world), Store.open(directory)
    node_ids = some_nodes(0 if world.rank == world.size - 1 > 0 else 40 + world.rank, world.rank)
    assert torch.equal(shared.take(node_ids).to_dense(), whole.take(node_ids).to_dense())
    assert torch.equal(shared.labels(node_ids), whole.labels(node_ids))
    assert torch.equal(shared.split(node_ids.int()), whole.split(node_ids))
    for name in ("num_nodes", "num_edges", "num_features", "num_classes", "task", "parts", "manifest", "directory"):
        assert getattr(shared, name) == getattr(whole, name)


def read_edges(world: World, directory: str, holdings: list[list[int]]) -> None:
    """Square and rectangular batches of every rank's own, some of them empty."""
    shared, whole = DistributedStore(Store.open(directory, holdings[world.rank]), world), Store.open(directory)
    sizes = [(30, None), (20, 50), (0, 40), (40, 0), (0, None)]
    for call in range(len(sizes)):
        num_targets, num_sources = sizes[(call + world.rank) % len(sizes)]
        targets = some_nodes(num_targets, world.rank, call)
        sources = None if num_sources is None else some_nodes(num_sources, world.rank, call, 1)
        for loops in (False, True):
            expected = whole.induced(targets, sources, loops=loops)
            assert_same_edges(shared.induced(targets, sources, loops=loops), expected)
        assert_same_edges(Hops.open(shared, 1).induced(1, targets, sources), expected)


def read_all(world: World, directories: list[str], holdings: list[list[int]]) -> None:
    for directory in directories:
        read_rows(world, directory, holdings)
        read_edges(world, directory, holdings)


@pytest.mark.parametrize("holdings", [[[0, 1, 2]], [[0], [1, 2]], [[2, 0], [0, 1], []]])
def test_what_lies_elsewhere_arrives_exactly(tmp_path: Path, holdings: list[list[int]]) -> None:
    write(tmp_path / "dense", build_graph(NODES, 1500, questions=3), 3)
    write(tmp_path / "sparse", build_graph(NODES, 1500, features="sparse"), 3)
    arguments = [str(tmp_path / "dense"), str(tmp_path / "sparse")], holdings
    if len(holdings) == 1:
        read_all(World(), *arguments)
    else:
        run_world(len(holdings), read_all, *arguments)


def test_a_part_that_no_rank_holds_is_named(tmp_path: Path) -> None:
    write(tmp_path / "partition", build_graph(NODES), 3)
    with pytest.raises(WorldError, match="no rank holds part 1"):
        DistributedStore(Store.open(tmp_path / "partition", [0, 2]), World())


def make_mistakes(world: World, directory: str, other: str) -> list[str]:
    """Rank 1 makes one mistake after another; between them, and at last, the ranks still understand each other."""
    right, wrong = torch.tensor([3, 80]), world.rank == 1
    shared = DistributedStore(Store.open(directory, [0, 1, 2] if wrong else [1]), world)
    found = [
        complaint(lambda: shared.take(torch.tensor([NODES + 5]) if wrong else right)),
        complaint(lambda: shared.labels(torch.tensor([0.5]) if wrong else right)),
        complaint(lambda: shared.induced(right, torch.tensor([7, 2, 7]) if wrong else right)),
        complaint(lambda: DistributedStore(Store.open(other if wrong else directory), world)),
    ]
    assert torch.equal(shared.take(right), Store.open(directory).take(right))
    return found


def test_a_mistake_of_one_rank_is_raised_on_all(tmp_path: Path) -> None:
    write(tmp_path / "partition", build_graph(NODES), 3)
    write(tmp_path / "other", build_graph(NODES, seed=1), 3)
    others, culprit = run_world(2, make_mistakes, str(tmp_path / "partition"), str(tmp_path / "other"))
    assert culprit[0].startswith("PartitionError: node id 95 is outside the 90 nodes")
    assert others[0].startswith("PartitionError: rank 1 cannot go on: node id 95 is outside")
    assert culprit[1].startswith("PartitionError: node ids must be integers [k], got torch.float32 [1]")
    assert others[1].startswith("PartitionError: rank 1 cannot go on: node ids must be integers")
    assert "node id 7 is in the batch twice" in culprit[2]
    assert "node id 7 is in the batch twice" in others[2]
    assert others[3] == culprit[3]
    assert others[3].startswith("WorldError: rank 1 has a partition of checksum ")


def test_ranks_outside_the_world_are_refused() -> None:
    with pytest.raises(WorldError, match="rank 3 does not exist in a world of 2"):
        World(3, 2)
