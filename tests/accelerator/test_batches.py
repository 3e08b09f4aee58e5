"""Batches on their way to an accelerator: what the CPU has, copied beside the step, and refused before they leave."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nfdist import settings
from nfdist.config import ModelConfig, RelationConfig
from nfdist.devices import Copies
from nfdist.errors import ConfigError
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.task import Task
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.training.batches import Assembler, Batch, Repeated
from nfdist.training.prefetching import Prefetched, fetch
from nfdist.training.preparation import Preparation
from nfdist.training.row_cache import RowCache, make_row_cache
from nfdist.training.sampling import Pools, Position, WholeGraph
from nfdist.world import World
from tests.accelerator.counts import counted
from tests.accelerator.device import accelerator, needs_counts
from tests.accelerator.graphs import build_graph

pytestmark = pytest.mark.accelerator
WORKERS = pytest.mark.parametrize("workers", [1, 2, 5])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(build_graph(tmp_path_factory.mktemp("graph"), "multi"))


def assembler_of(store: Store) -> Assembler:
    split = store.split(torch.arange(store.num_nodes))
    return Assembler(store, Hops.open(store, 1), RelationConfig(order=1), split, World())


def preparation_of(store: Store, share: float = 0.0) -> Preparation:
    model = NodeFormer(store.num_features, store.num_classes, ModelConfig(channels=4), label_inputs=share > 0)
    return Preparation(model, Task(store.task, store.num_classes), 3, share, accelerator())


def pools_of(store: Store) -> Pools:
    return Pools([torch.arange(store.num_nodes)], None, 1, 50, seed=3)


def assert_the_same(moved: Batch, wanted: Batch) -> None:
    """The batch that arrived is the one that was made, with what a step needs beside it."""
    device = accelerator()
    for name in ("node_ids", "features", "labeled", "labels", "given"):
        there, here = getattr(moved, name), getattr(wanted, name)
        assert (there is None) == (here is None)
        if there is not None:
            assert there.device == device
            assert torch.equal(there.cpu(), here), name
    for there, here in zip(moved.relations, wanted.relations, strict=True):
        assert torch.equal(there.adjacency.sources.cpu(), here.adjacency.sources)
        assert torch.equal(there.adjacency.transposed[1].cpu(), here.adjacency.transposed[1])
        assert torch.equal(there.edge_weights.cpu(), here.edge_weights)
    assert moved.checksum() == wanted.checksum()
    assert moved.directions is not None
    assert moved.directions.device == device


def test_batches_for_a_device_are_made_ahead(store: Store) -> None:
    with fetch(assembler_of(store), pools_of(store), Position(), 1, accelerator()) as batches:
        assert type(batches) is Prefetched


@WORKERS
def test_batches_arrive_as_they_were_made(store: Store, workers: int) -> None:
    assembler, position, prepared = assembler_of(store), Position(), preparation_of(store)
    with Prefetched(assembler, pools_of(store), position, 2, accelerator(), prepared, workers) as batches:
        for batch in batches:
            node_ids, after = pools_of(store).take(position)
            wanted = assembler.assemble(node_ids, after)
            assert_the_same(batch, wanted)
            assert batch.known is not None
            assert torch.equal(batch.known.cpu(), (wanted.labels.flatten() >= 0).nonzero()[:, 0])
            position = after
    assert position.epoch == 2


@WORKERS
@pytest.mark.parametrize("cached", [0, 40, 120])
def test_rows_that_stay_on_the_device_are_joined_with_the_others(cached: int, workers: int, store: Store) -> None:
    plain, rows = assembler_of(store), store.take(torch.arange(cached)).to(accelerator())
    caching, position = replace(plain, cache=RowCache(rows)), Position()
    with Prefetched(caching, pools_of(store), position, 1, accelerator(), preparation_of(store), workers) as batches:
        for batch in batches:
            node_ids, position = pools_of(store).take(position)
            assert_the_same(batch, plain.assemble(node_ids, position))
            assert len(batch.on_host.features) == int((node_ids[0] >= cached).sum())


def test_as_many_rows_stay_as_there_is_room_for(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    row = 8 * store.num_features

    def cache(device: torch.device, *words: str) -> RowCache | None:
        config = settings.parse({"data": {"cache": "device"}, "train": {"batch_nodes": 9}}, words)
        return make_row_cache(config, store, device, World(), torch.float64)

    for memory, held in ((f"{30 * row + 1}", 30), (f"{row - 1}", 0), ("1GiB", store.num_nodes)):
        made = cache(accelerator(), f'data.cache_memory="{memory}"')
        assert made is not None
        assert torch.equal(made.rows.cpu(), store.take(torch.arange(held)).double())
    assert cache(torch.device("cpu")) is None
    assert "data.cache = device does nothing on the CPU" in capsys.readouterr().err
    assert cache(accelerator(), "train.batch_nodes=0") is None


def test_a_whole_graph_is_copied_once_and_what_changes_in_every_step(store: Store) -> None:
    graph, prepared = WholeGraph([range(store.num_nodes)]), preparation_of(store, share=0.5)
    batches = list(Repeated(assembler_of(store), graph, Position(), 3, accelerator(), prepared))
    assert len(batches) == 3
    for number, batch in enumerate(batches):
        assert batch.number == number
        assert_the_same(batch, batch.on_host)
        assert batch.features is batches[0].features
        assert batch.relations is batches[0].relations
    assert batches[0].given is not None
    assert batches[1].given is not None
    assert not torch.equal(batches[0].given, batches[1].given)
    assert not torch.equal(*(batch.directions for batch in batches[:2] if batch.directions is not None))


@WORKERS
def test_no_step_waits_for_a_batch_on_the_device(store: Store, workers: int) -> None:
    needs_counts()
    assembler, prepared = assembler_of(store), preparation_of(store)
    with (
        counted() as counts,
        Prefetched(assembler, pools_of(store), Position(), 1, accelerator(), prepared, workers) as batches,
    ):
        assert sum(batch.num_nodes for batch in batches) == store.num_nodes
    assert counts.of_thread().syncs.total() == 0, counts.table("syncs")
    assert counts.syncs.total() == 0, counts.table("syncs")


def test_what_a_device_could_not_refuse_is_refused_before(store: Store) -> None:
    batch, prepared = assembler_of(store).assemble([torch.arange(3)], Position(1)), preparation_of(store)
    infinite, unknown = torch.tensor([[0.0, 1.0], [0.0, torch.inf]]), torch.tensor([[0, 2, -1]])
    with pytest.raises(ConfigError, match="features of 1 nodes are NaN or infinite, first at row 1"):
        prepared(replace(batch, features=infinite))
    with pytest.raises(ConfigError, match="label 2 is outside the 2 classes 0 to 1"):
        prepared(replace(batch, labels=unknown))


@pytest.mark.parametrize("device", ["cpu", "accelerator"])
def test_copies_of_sparse_rows(device: str, tmp_path: Path) -> None:
    place = torch.device("cpu") if device == "cpu" else accelerator()
    rows = Store.open(build_graph(tmp_path, "words")).take(torch.arange(9))
    copies = Copies(place)
    moved = copies.move(rows)
    copies.arrival().precede()
    copies.arrival().complete()
    assert moved.device == place
    assert moved.layout == torch.sparse_csr
    assert torch.equal(moved.values().cpu(), rows.values())
    assert torch.equal(moved.col_indices().cpu(), rows.col_indices())
