"""Ranks that hold different parts read the same rows as one that holds them all."""

from pathlib import Path

import pytest
import torch

from nfdist.errors import WorldError
from nfdist.store.shared import SharedStore
from nfdist.store.store import Store
from nfdist.world import World
from tests.store.building import build_graph, write
from tests.worlds import run_world

NODES = 90


def read_rows(world: World, directory: str, holdings: list[list[int]], empty_rank: int) -> float:
    """Every rank asks for other nodes, one of them for none."""
    shared = SharedStore(Store.open(directory, holdings[world.rank]), world)
    count = 0 if world.rank == empty_rank else 40 + world.rank
    node_ids = torch.randperm(NODES, generator=torch.Generator().manual_seed(world.rank))[:count]
    rows = shared.take(node_ids)
    expected = Store.open(directory).take(node_ids)
    if rows.layout == torch.sparse_csr:
        rows, expected = rows.to_dense(), expected.to_dense()
    assert torch.equal(rows, expected)
    return float(rows.sum())


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("holdings", [[[0, 1, 2]], [[0], [1, 2]], [[2, 0], [0, 1], [1]]])
def test_rows_of_parts_elsewhere_arrive_exactly(tmp_path: Path, holdings: list[list[int]], sparse: bool) -> None:
    write(tmp_path / "partition", build_graph(NODES, features="sparse" if sparse else "float32"), 3)
    run_world(len(holdings), read_rows, str(tmp_path / "partition"), holdings, len(holdings) - 1)


def test_a_part_that_no_rank_holds_is_named(tmp_path: Path) -> None:
    write(tmp_path / "partition", build_graph(NODES), 3)
    with pytest.raises(WorldError, match="no rank holds part 1"):
        SharedStore(Store.open(tmp_path / "partition", [0, 2]), World())


def ask_for_too_much(world: World, directory: str) -> str:
    shared = SharedStore(Store.open(directory, [0, 1, 2] if world.rank else [1]), world)
    try:
        shared.take(torch.tensor([NODES + 5] if world.rank else [3]))
    except WorldError as error:
        return str(error)
    return "nothing"


def test_a_node_out_of_range_fails_on_every_rank(tmp_path: Path) -> None:
    write(tmp_path / "partition", build_graph(NODES), 3)
    first, second = run_world(2, ask_for_too_much, str(tmp_path / "partition"))
    assert "a node id of another rank is outside the 90 nodes" in first
    assert "node id 95 is outside the 90 nodes" in second


def test_ranks_outside_the_world_are_refused() -> None:
    with pytest.raises(WorldError, match="rank 3 does not exist in a world of 2"):
        World(3, 2)
