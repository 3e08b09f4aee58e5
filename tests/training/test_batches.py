"""Batches made ahead are the batches made on demand; closing early leaves every rank with the same number made."""

import time
from dataclasses import replace

import pytest
import torch

from nfdist.config import RelationConfig
from nfdist.errors import PartitionError
from nfdist.store.distributed import DistributedStore
from nfdist.store.hops import Hops
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import Store
from nfdist.training.batches import Assembler, Batch, Buffer, Fetched, Prefetched, Repeated, fetch
from nfdist.training.sampling import Pools, Position, WholeGraph
from nfdist.world import World
from tests.training.building import build_partition

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(build_partition(tmp_path_factory.mktemp("graph") / "partition"))


def assembler_of(store: Store) -> Assembler:
    split = store.split(torch.arange(store.num_nodes))
    return Assembler(store, Hops.open(store, 1), RelationConfig(order=1), split, World())


def pools_of(store: Store) -> Pools:
    return Pools([torch.arange(store.num_nodes)], None, 1, 50, seed=3)


def assert_equal(left: Batch, right: Batch) -> None:
    assert left.after == right.after
    for name in ("node_ids", "features", "labeled", "labels"):
        assert torch.equal(getattr(left, name), getattr(right, name)), name
    assert torch.equal(left.relations[0].adjacency.sources, right.relations[0].adjacency.sources)


def test_a_batch_holds_what_the_store_holds(store: Store) -> None:
    node_ids = torch.tensor([3, 17, 20, 101, 200])
    batch = assembler_of(store).assemble([node_ids], Position(1))
    assert torch.equal(batch.features, store.take(node_ids))
    assert batch.labeled.tolist() == (store.split(node_ids) == TRAIN).nonzero()[:, 0].tolist()
    assert torch.equal(batch.labels, store.labels(node_ids)[batch.labeled])
    assert batch.num_edges == store.induced(node_ids, loops=True).num_edges


@pytest.mark.parametrize("kind", [Fetched, Prefetched])
def test_batches_are_what_their_positions_say(store: Store, kind: type[Fetched | Prefetched]) -> None:
    assembler, position, count = assembler_of(store), Position(), 0
    with kind(assembler, pools_of(store), position, 3, CPU) as batches:
        for batch in batches:
            time.sleep(0.01)  # the next one may be in the making meanwhile, in another buffer
            node_ids, after = pools_of(store).take(position)
            assert_equal(batch, assembler.assemble(node_ids, after))
            position, count = after, count + 1
    assert position == Position(batch=15, epoch=3)
    assert count == 15


def test_batches_are_made_ahead_where_rows_come_over_a_network(store: Store) -> None:
    own = assembler_of(store)
    shared = replace(own, store=DistributedStore(store, World()))
    for assembler, kind in ((own, Fetched), (shared, Prefetched)):
        with fetch(assembler, pools_of(store), Position(), 1, CPU) as batches:
            assert type(batches) is kind
            assert sum(batch.num_nodes for batch in batches) == store.num_nodes


@pytest.mark.parametrize("used", [0, 1, 4])
def test_closing_early_makes_one_batch_more_than_is_in_use(store: Store, used: int) -> None:
    """In a world the ranks make batches together: were the number open, one would wait for the others."""
    made = []

    class Counting(Assembler):
        def assemble(self, node_ids: list[torch.Tensor], after: Position, buffer: Buffer | None = None) -> Batch:
            made.append(after)
            time.sleep(0.005 * (len(made) % 3))
            return super().assemble(node_ids, after, buffer)

    plain = assembler_of(store)
    counting = Counting(plain.store, plain.hops, plain.relation, plain.split, plain.world)
    with Prefetched(counting, pools_of(store), Position(), 100, CPU) as batches:
        for count, _ in enumerate(batches):
            if count == used:
                break
    assert len(made) == used + 2


def test_what_goes_wrong_ahead_is_raised_where_batches_are_used(store: Store) -> None:
    pools = Pools([torch.arange(store.num_nodes + 60)], None, 1, 50, seed=3)
    with (
        pytest.raises(PartitionError, match="outside the 245 nodes"),
        Prefetched(assembler_of(store), pools, Position(), 1, CPU) as batches,
    ):
        for _ in batches:
            pass


def test_the_whole_graph_is_read_once(store: Store) -> None:
    whole = WholeGraph([range(store.num_nodes)])
    batches = list(Repeated(assembler_of(store), whole, Position(2, 2), 5, CPU))
    assert [batch.after for batch in batches] == [Position(3, 3), Position(4, 4), Position(5, 5)]
    assert all(batch.features is batches[0].features for batch in batches)


def test_a_checksum_names_the_rows(store: Store) -> None:
    assembler = assembler_of(store)
    one, same, other = (
        assembler.assemble([torch.tensor(ids)], Position()).checksum() for ids in ([1, 2], [1, 2], [1, 3])
    )
    assert one == same != other
