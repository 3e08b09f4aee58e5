"""Batches made ahead are the batches made on demand, by any number of workers; nothing of them stays behind."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nfdist.config import RelationConfig
from nfdist.errors import PartitionError
from nfdist.store.distributed import DistributedStore
from nfdist.store.store import Store
from nfdist.training.batches import Assembler, Batch, Buffer, Fetched
from nfdist.training.prefetching import Prefetched, count_workers, fetch
from nfdist.training.sampling import Pools, Position, Sampler
from nfdist.training.walks import Walks
from nfdist.world import World
from tests.store import building
from tests.training.batching import assembler_of, assert_equal, pools_of
from tests.training.building import build_partition

CPU = torch.device("cpu")
WORKERS = pytest.mark.parametrize("workers", [1, 2, 5])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(build_partition(tmp_path_factory.mktemp("graph") / "partition"))


def loading() -> bool:
    return any(thread.name.startswith("nfdist batches") for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def _no_worker_stays() -> Iterator[None]:
    yield
    ends = time.monotonic() + 60
    while loading():  # after a failure they end by themselves
        assert time.monotonic() < ends, "a worker has not ended within a minute"
        time.sleep(0.001)


class Uneven(Assembler):
    """Takes longer for some batches, so that workers are done in another order than they began."""

    def assemble(self, node_ids: list[Tensor], after: Position, buffer: Buffer | None = None) -> Batch:
        batch = super().assemble(node_ids, after, buffer)
        time.sleep(0.002 * (-after.batch % 4))
        return batch


def on_demand(assembler: Assembler, sampler: Sampler, position: Position, epochs: int) -> Iterator[Batch]:
    """The batches that should come, each in memory of its own."""
    while position.epoch < epochs:
        node_ids, position = sampler.take(position)
        yield assembler.assemble(node_ids, position)


@WORKERS
def test_batches_are_what_their_positions_say(store: Store, workers: int) -> None:
    position, count = Position(2, 0, (98,)), 0
    wanted = on_demand(assembler_of(store), pools_of(store), position, 3)
    ahead = assembler_of(store, kind=Uneven)
    with Prefetched(ahead, pools_of(store), position, 3, CPU, workers=workers) as batches:
        for batch in batches:
            time.sleep(0.002 * (count % 3))  # others are in the making meanwhile, in other buffers
            assert_equal(batch, next(wanted))
            count += 1
    assert count == 13
    assert not list(wanted)


@pytest.mark.parametrize("features", ["float32", "sparse"])
def test_threads_that_open_a_graph_together_read_what_one_reads(tmp_path: Path, features: str) -> None:
    """What is checked or made at first use, by whoever comes first: checksums, scratch, the warnings of sparse rows."""
    building.write(tmp_path / "graph", building.build_graph(400, 9000, features=features))
    alone, together = Store.open(tmp_path / "graph"), Store.open(tmp_path / "graph")
    wanted = on_demand(assembler_of(alone, 2), Walks(alone, 1, 60, 3, 5), Position(), 5)
    with Prefetched(assembler_of(together, 2), Walks(together, 1, 60, 3, 5), Position(), 5, CPU, workers=5) as batches:
        for batch in batches:
            assert_equal(batch, next(wanted))
    assert not list(wanted)


def test_batches_are_made_ahead_where_rows_come_over_a_network(store: Store) -> None:
    own = assembler_of(store)
    shared = replace(own, store=DistributedStore(store, World()))
    for assembler, kind in ((own, Fetched), (shared, Prefetched)):
        with fetch(assembler, pools_of(store), Position(), 1, CPU) as batches:
            assert type(batches) is kind
            assert sum(batch.num_nodes for batch in batches) == store.num_nodes


@pytest.mark.parametrize(("workers", "ahead"), [(1, 1), (2, 3), (5, 6)])
@pytest.mark.parametrize("used", [0, 1, 4])
def test_closing_early_ends_all_workers(store: Store, used: int, workers: int, ahead: int) -> None:
    """In a world one worker makes batches with other ranks: were their number open, one would wait for the others."""
    made = []

    class Counting(Uneven):
        def assemble(self, node_ids: list[Tensor], after: Position, buffer: Buffer | None = None) -> Batch:
            made.append(after.batch)
            return super().assemble(node_ids, after, buffer)

    counting = assembler_of(store, kind=Counting)
    with Prefetched(counting, pools_of(store), Position(), 100, CPU, workers=workers) as batches:
        for count, _ in enumerate(batches):
            if count == used:
                break
    assert not loading()
    assert sorted(made) == list(range(1, len(made) + 1))
    assert used + 1 <= len(made) <= used + 1 + ahead
    assert workers > 1 or len(made) == used + 2


@WORKERS
def test_batches_before_a_failure_are_used_and_it_is_raised_in_its_place(store: Store, workers: int) -> None:
    class Failing(Uneven):
        def assemble(self, node_ids: list[Tensor], after: Position, buffer: Buffer | None = None) -> Batch:
            if after.batch >= 3:
                raise PartitionError(f"batch {after.batch}")
            return super().assemble(node_ids, after, buffer)

    failing, found = assembler_of(store, kind=Failing), list[int]()
    with (
        pytest.raises(PartitionError, match="batch 3"),
        Prefetched(failing, pools_of(store), Position(), 9, CPU, workers=workers) as batches,
    ):
        found.extend(batch.after.batch for batch in batches)
    assert found == [1, 2]


@WORKERS
def test_what_no_batch_can_be_taken_of_is_raised(store: Store, workers: int) -> None:
    class Drained(Pools):
        def take(self, position: Position) -> tuple[list[Tensor], Position]:
            if position.batch == 2:
                raise ValueError("no third batch")
            return super().take(position)

    drained, found = Drained([torch.arange(store.num_nodes)], None, 1, 50, seed=3), list[int]()
    with (
        pytest.raises(ValueError, match="no third batch"),
        Prefetched(assembler_of(store), drained, Position(), 9, CPU, workers=workers) as batches,
    ):
        found.extend(batch.after.batch for batch in batches)
    assert found == [1, 2]


def test_a_worker_starts_no_threads_and_those_of_others_stay_as_many(store: Store) -> None:
    seen: set[int] = set()

    class Asking(Assembler):
        def assemble(self, node_ids: list[Tensor], after: Position, buffer: Buffer | None = None) -> Batch:
            seen.add(torch.get_num_threads())
            return super().assemble(node_ids, after, buffer)

    used = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        with (
            Prefetched(assembler_of(store, kind=Asking), pools_of(store), Position(), 3, CPU, workers=3) as batches,
            ThreadPoolExecutor(1) as later,
        ):
            assert torch.get_num_threads() == later.submit(torch.get_num_threads).result() == 4
            assert sum(batch.num_nodes for batch in batches) == 3 * store.num_nodes
    finally:
        torch.set_num_threads(used)
    assert seen == {1}


@pytest.mark.parametrize(
    ("cores", "local_ranks", "workers"), [(1, 1, 1), (2, 1, 1), (4, 1, 3), (64, 1, 8), (64, 8, 7), (8, 16, 1)]
)
def test_ranks_of_a_host_divide_its_cores(cores: int, local_ranks: int, workers: int, store: Store) -> None:
    assert count_workers(assembler_of(store), local_ranks, cores) == workers


def test_ranks_that_talk_about_batches_have_one_worker_each(store: Store) -> None:
    own = assembler_of(store)
    pair, shared = World(0, 2), RelationConfig(order=1, scope="world")
    for crossing in (replace(own, world=pair, relation=shared), replace(own, store=DistributedStore(store, World()))):
        assert count_workers(crossing, 1, 64) == 1
    for apart in (replace(own, relation=shared), replace(own, world=pair)):
        assert count_workers(apart, 1, 64) == 8
