"""Batches hold what the store holds, at the positions that the sampler says."""

import pytest
import torch

from nfdist.store.source_graph import TRAIN
from nfdist.store.store import Store
from nfdist.training.batches import Fetched, Repeated
from nfdist.training.sampling import Position, WholeGraph
from tests.training.batching import assembler_of, assert_equal, pools_of
from tests.training.building import build_partition

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(build_partition(tmp_path_factory.mktemp("graph") / "partition"))


def test_a_batch_holds_what_the_store_holds(store: Store) -> None:
    node_ids = torch.tensor([3, 17, 20, 101, 200])
    batch = assembler_of(store).assemble([node_ids], Position(1))
    assert torch.equal(batch.features, store.take(node_ids))
    assert batch.labeled.tolist() == (store.split(node_ids) == TRAIN).nonzero()[:, 0].tolist()
    assert torch.equal(batch.labels, store.labels(node_ids)[batch.labeled])
    assert batch.num_edges == store.induced(node_ids, loops=True).num_edges


def test_batches_are_what_their_positions_say(store: Store) -> None:
    assembler, position, count = assembler_of(store), Position(), 0
    with Fetched(assembler, pools_of(store), position, 3, CPU) as batches:
        for batch in batches:
            node_ids, after = pools_of(store).take(position)
            assert_equal(batch, assembler.assemble(node_ids, after))
            position, count = after, count + 1
    assert position == Position(batch=15, epoch=3)
    assert count == 15


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
