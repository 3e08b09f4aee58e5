"""Every epoch visits every node once, whatever the ranks; sizes follow from what is left alone."""

import pytest
import torch

from nfdist.errors import ConfigError
from nfdist.graph.division import divide
from nfdist.store.manifest import Part
from nfdist.training.sampling import Pools, Position, WholeGraph, part_owners
from tests.training.building import epoch

NODES = torch.arange(1000)[::3]


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("batch_nodes", [1, 10, 48, 333, 334, 10_000])
def test_an_epoch_visits_every_node_once(ranks: int, batch_nodes: int) -> None:
    pools = Pools([NODES], None, ranks, batch_nodes, seed=4)
    steps, after = epoch(pools, Position())
    everyone = torch.cat([torch.cat(batches) for batches in steps])
    assert torch.equal(everyone.sort().values, NODES)
    assert all(len(batch) <= batch_nodes for batches in steps for batch in batches)
    assert all(torch.equal(batch, batch.sort().values) for batches in steps for batch in batches)
    assert len(steps) == pools.batches(Position()) == -(-len(NODES) // (ranks * batch_nodes))
    assert after == Position(batch=len(steps), epoch=1)


def test_worlds_of_any_size_take_the_same_nodes_in_a_step() -> None:
    alone = Pools([NODES], None, 1, 60, seed=4)
    for ranks in (2, 3, 5):
        together = Pools([NODES], None, ranks, 60 // ranks, seed=4)
        position = Position()
        for _ in range(12):
            (wanted,), after = alone.take(position)
            batches, also_after = together.take(position)
            assert torch.equal(torch.cat(batches).sort().values, wanted)
            assert after == also_after
            sizes = [len(batch) for batch in batches]
            assert max(sizes) - min(sizes) <= 1
            position = after


@pytest.mark.parametrize("owned", [False, True])
def test_another_world_goes_on_with_the_nodes_that_remain(owned: bool) -> None:
    parts = [NODES[:100], NODES[100:180], NODES[180:]] if owned else [NODES]
    first = Pools(parts, [0, 1, 1] if owned else None, 2, 20, seed=1)
    position, seen = Position(epoch=3), []
    for _ in range(4):
        batches, position = first.take(position)
        seen += batches
    other = Pools(parts, [0, 1, 2] if owned else None, 3, 31, seed=1)
    steps, after = epoch(other, position)
    rest = [batch for batches in steps for batch in batches]
    assert torch.equal(torch.cat(seen + rest).sort().values, NODES)
    assert after.epoch == 4
    assert after.batch == 4 + len(steps)


def test_a_rank_takes_from_its_own_parts_and_none_takes_too_much() -> None:
    parts = [NODES[:3], NODES[3:10], NODES[10:250], NODES[250:]]
    owners = [0, 0, 1, 2]
    pools = Pools(parts, owners, 3, 17, seed=2)
    steps, _ = epoch(pools, Position())
    for rank, part in ((0, torch.cat(parts[:2])), (1, parts[2]), (2, parts[3])):
        taken = torch.cat([batches[rank] for batches in steps])
        assert torch.equal(taken.sort().values, part)
        assert max(len(batches[rank]) for batches in steps) <= 17


def test_epochs_and_seeds_have_orders_of_their_own_and_repeat() -> None:
    def first_batch(seed: int, epoch: int) -> torch.Tensor:
        return Pools([NODES], None, 1, 50, seed).take(Position(epoch=epoch))[0][0]

    assert torch.equal(first_batch(0, 0), first_batch(0, 0))
    assert not torch.equal(first_batch(0, 0), first_batch(0, 1))
    assert not torch.equal(first_batch(0, 0), first_batch(1, 0))


def test_a_pool_without_nodes_gives_its_rank_empty_batches() -> None:
    steps, _ = epoch(Pools([NODES[:0], NODES], [0, 1], 2, 100, seed=0), Position())
    assert [len(batches[0]) for batches in steps] == [0] * 4
    assert sum(len(batches[1]) for batches in steps) == len(NODES)


def test_the_whole_graph_is_one_step() -> None:
    whole = WholeGraph([range(4), range(4, 9)])
    batches, after = whole.take(Position(5, 5))
    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7, 8]]
    assert after == Position(6, 6)


@pytest.mark.parametrize("ends", [[10], [3, 10], [4, 5, 5, 40], [1, 2, 3, 4, 100], list(range(1, 9))])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_ranges_cover_all_nodes_and_keep_parts_whole_where_there_are_enough(ends: list[int], ranks: int) -> None:
    parts = [Part(start, stop, 0, 0, 0, 0) for start, stop in zip([0, *ends], ends, strict=False)]
    ranges = divide(parts, ranks)
    assert [node for nodes in ranges for node in nodes] == list(range(ends[-1]))
    if len(parts) >= ranks:
        assert {nodes.stop for nodes in ranges} <= set(ends)


def test_parts_go_to_ranks_that_see_them() -> None:
    assert part_owners([[0, 1], [0, 1], [0, 1], [0, 1]], 2) == [0, 1, 0, 1]
    assert part_owners([[0], [0], [1, 2], [1, 2]], 3) == [0, 0, 1, 2]
    with pytest.raises(ConfigError, match="rank 2 has none of the 2"):
        part_owners([[0, 1, 2], [0, 1, 2]], 3)
