"""The memory of a step: laws that hold for any sizes; tests/plan compares it with what is measured."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nfdist import settings
from nfdist.config import Config
from nfdist.graph.counts import GraphCounts, read_counts
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw
from nfdist.store.store import Store
from nfdist.training.batch_counts import count_batch
from nfdist.training.sampling import Position
from nfdist.training.step_memory import StepMemory, step_memory
from tests.training.batching import assembler_of
from tests.training.building import build_partition


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graph") / "partition")


@pytest.fixture(scope="module")
def graph(partition: Path) -> GraphCounts:
    counts = read_counts(partition, 1)
    return replace(counts, nodes=10**6, edges=10**7, patterns=(11 * 10**6, 10**8))


def memory(graph: GraphCounts, *overrides: str, ranks: int = 1) -> StepMemory:
    config = settings.parse({"relation": {"order": 1}, "train": {"batch_nodes": 50_000}}, list(overrides))
    return step_memory(config, graph, count_batch(config, graph, ranks), ranks)


@pytest.mark.parametrize("name", ["nodeformer", "gcn", "mlp"])
def test_more_of_anything_takes_more(name: str, graph: GraphCounts) -> None:
    named = (f"model.name={name}", "train.edge_loss=0")
    base = memory(graph, *named)
    assert 0 < base.least < base.total
    for more in ("train.batch_nodes=100000", "model.layers=4", "model.channels=64", "train.precision=float64"):
        larger = memory(graph, *named, more)
        assert larger.total > base.total, more
        assert larger.least > base.least, more


@pytest.mark.parametrize(
    "more", ["train.edge_loss=0.1", "model.heads=8", "model.feed_forward=4", "model.graph_layers=2", "relation.order=2"]
)
def test_options_of_the_model_take_memory(more: str, graph: GraphCounts) -> None:
    assert memory(graph, "train.edge_loss=0", more).total > memory(graph, "train.edge_loss=0").total


def test_sparse_rows_cost_their_entries(graph: GraphCounts) -> None:
    wide = replace(graph, features=100_000, entries=50.0)
    assert memory(wide).of_batch < 1.2 * memory(graph).of_batch
    assert memory(replace(wide, entries=None)).of_batch > 10 * memory(graph).of_batch


def kept_bytes(partition: Path, config: Config) -> int:
    """What the forward pass of a step on the whole graph leaves for its backward pass, without batch and weights."""
    store = Store.open(partition)
    batch = assembler_of(store).assemble([torch.arange(store.num_nodes)], Position(1))
    net = NodeFormer.build(config, store.num_features, store.num_classes, 0)
    net.recompute = config.train.recompute == "always"
    given = {tensor.untyped_storage().data_ptr() for tensor in (batch.features, *net.parameters(), *net.buffers())}
    given |= {
        tensor.untyped_storage().data_ptr()
        for relation in batch.relations
        for tensor in (*relation.adjacency.transposed, *vars(relation.adjacency).values(), relation.edge_weights)
        if isinstance(tensor, Tensor)
    }
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in given and tensor.numel() >= store.num_nodes:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = net(batch.features, batch.relations, Draw(0, 1, batch.node_ids), auxiliary_scale=0.1)
        loss = torch.nn.functional.cross_entropy(output.logits, batch.node_ids % store.num_classes)
    assert loss.requires_grad
    return sum(kept.values())


@pytest.mark.parametrize("layers", [1, 4])
@pytest.mark.parametrize("channels", [16, 64])
def test_of_layers_that_are_made_again_as_much_is_kept_as_planned(layers: int, channels: int, partition: Path) -> None:
    shape = [f"model.layers={layers}", f"model.channels={channels}", "relation.order=1", "train.batch_nodes=0"]
    config = settings.parse({"train": {"recompute": "always"}}, shape)
    counts = read_counts(partition, 1)
    planned = step_memory(config, counts, count_batch(config, counts)).kept
    measured = kept_bytes(partition, config)
    assert 0.75 < planned / measured < 1.25
    never = settings.parse({"train": {"recompute": "never"}}, shape)
    assert kept_bytes(partition, never) > 2 * measured


@pytest.mark.parametrize(("name", "order"), [("glcn", 0), ("vgcn", 1)])
def test_a_model_of_all_pairs_takes_the_square_of_its_nodes(name: str, order: int, graph: GraphCounts) -> None:
    named = (f"model.name={name}", f"relation.order={order}", "train.edge_loss=0")
    few, many = (memory(graph, *named, f"train.batch_nodes={nodes}").of_batch for nodes in (20_000, 40_000))
    assert 3.7 < many / few < 4.1  # the draws and what is made of them; weights are of the whole graph
    assert few > 3 * memory(graph, "model.name=gcn", "train.edge_loss=0", "train.batch_nodes=20000").of_batch
