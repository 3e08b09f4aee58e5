"""The memory of a step: laws that hold for any sizes; tests/plan compares it with what is measured."""

from dataclasses import replace

import pytest

from nfdist import settings
from nfdist.graph.counts import GraphCounts, read_counts
from nfdist.training.batch_counts import count_batch
from nfdist.training.step_memory import StepMemory, step_memory
from tests.training.building import build_partition


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> GraphCounts:
    counts = read_counts(build_partition(tmp_path_factory.mktemp("graph") / "partition"), 1)
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


@pytest.mark.parametrize(("name", "order"), [("glcn", 0), ("vgcn", 1)])
def test_a_model_of_all_pairs_takes_the_square_of_its_nodes(name: str, order: int, graph: GraphCounts) -> None:
    named = (f"model.name={name}", f"relation.order={order}", "train.edge_loss=0")
    few, many = (memory(graph, *named, f"train.batch_nodes={nodes}").of_batch for nodes in (20_000, 40_000))
    assert 3.7 < many / few < 4.1  # the draws and what is made of them; weights are of the whole graph
    assert few > 3 * memory(graph, "model.name=gcn", "train.edge_loss=0", "train.batch_nodes=20000").of_batch
