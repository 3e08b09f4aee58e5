"""The evaluation of a baseline is its forward pass over the whole graph, and every rank has its own rows of it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nfdist.config import Config, DropEdgeConfig, ModelConfig, RelationConfig, TrainConfig
from nfdist.errors import ConfigError
from nfdist.evaluation.evaluation_graph import open_evaluation_graph
from nfdist.evaluation.full import FullGraph
from nfdist.evaluation.in_memory import InMemoryGraph
from nfdist.evaluation.propagated import PropagatedGraph
from nfdist.graph.relation import Relation
from nfdist.model.baselines.baseline import Baseline
from nfdist.model.baselines.gcn import SGC, DropEdge
from nfdist.model.build import build_model
from nfdist.model.protocol import Draw
from nfdist.store.distributed import DistributedStore
from nfdist.store.hops import Hops
from nfdist.store.store import GraphStore, Store
from nfdist.world import World
from tests.comparing import difference
from tests.evaluation.building import OUTPUTS, weight_matrix, write_graph, write_weighted_graph
from tests.model.baselines.reference import dense_logits
from tests.needs import MODELS_LEFT_OUT
from tests.worlds import run_world

CASES = [
    ("gcn", 1, "directed"),
    ("gat", 1, "sparse"),
    ("mlp", 0, "undirected"),
    ("dropedge", 1, "no edges"),
    ("sgc", 1, "undirected"),
    ("mixhop", 1, "directed"),
    ("jknet", 1, "sparse"),
]
CASES = [case for case in CASES if case[0] not in MODELS_LEFT_OUT]


def config_of(name: str, order: int) -> Config:
    own = DropEdgeConfig(edge_dropout=0.5 if name == "dropedge" else 0.0)
    model = ModelConfig(name=name, dropout=0.5, dropedge=own)
    return Config(model=model, relation=RelationConfig(order=order), train=TrainConfig(edge_loss=0.0))


def build(config: Config, store: GraphStore) -> Baseline:
    model = build_model(config, store.num_features, OUTPUTS, seed=3)
    assert isinstance(model, Baseline)
    return model.double().eval()


def logits_of(world: World, folder: Path) -> list[tuple[list[int], list[list[float]]]]:
    """This rank's nodes and their logits, twice, from all parts and then, where there are others, from its own."""
    found = []
    for name, order, kind in CASES:
        config = config_of(name, order)
        stores: list[GraphStore] = [Store.open(folder / kind)]
        if world.size > 1:
            stores.append(DistributedStore(Store.open(folder / kind, [world.size - 1 - world.rank]), world))
        for store in stores:
            graph = open_evaluation_graph(config, store, Hops.open(store, order), world, dtype=torch.float64)
            assert isinstance(graph, InMemoryGraph if world.size == 1 or name == "gat" else PropagatedGraph)
            first, again = (graph.evaluate(build(config, store), seed) for seed in (4, 5))
            assert torch.equal(first.logits, again.logits)
            assert first.nodes == graph.nodes
            found.append((list(graph.nodes), first.logits.tolist()))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    for kind in {kind for _, _, kind in CASES}:
        write_graph(folder / kind, kind, 3)
    return folder


@pytest.mark.parametrize("size", [1, 3])
def test_ranks_together_have_the_logits_of_the_whole_graph(size: int, folder: Path) -> None:
    """Also where each holds one part, the first of them the last."""
    ways = [logits_of(World(), folder)] if size == 1 else run_world(size, logits_of, folder)
    if size > 1:
        assert_whole([answer[1::2] for answer in reversed(ways)], folder)
        ways = [answer[::2] for answer in ways]
    assert_whole(ways, folder)


def assert_whole(answers: list[list[tuple[list[int], list[list[float]]]]], folder: Path) -> None:
    for case, (name, order, kind) in enumerate(CASES):
        store = Store.open(folder / kind)
        everyone = torch.arange(store.num_nodes)
        model = build(config_of(name, order), store)
        features = store.take(everyone).to_dense().double()
        wanted = dense_logits(model, features, store.induced(everyone), Draw(0, 0, everyone))
        assert [node for answer in answers for node in answer[case][0]] == everyone.tolist()
        rows = torch.tensor([row for answer in answers for row in answer[case][1]], dtype=torch.float64)
        assert difference(rows, wanted) < 1e-10, name


def test_what_a_baseline_cannot_have_is_one_line(folder: Path) -> None:
    store = Store.open(folder / "directed")
    with pytest.raises(ConfigError) as caught:
        open_evaluation_graph(
            config_of("gcn", 1), store, Hops.open(store, 1), World(), dtype=torch.float64, memory_bytes=1 << 30
        )
    assert caught.value.everywhere
    assert str(caught.value) == "model.name = gcn is evaluated in memory, without a limit: leave --memory away"


def test_nodeformer_keeps_its_own_evaluation(folder: Path) -> None:
    store = Store.open(folder / "directed")
    graph = open_evaluation_graph(Config(), store, Hops.open(store, 2), World(), dtype=torch.float32)
    assert isinstance(graph, FullGraph)


@pytest.mark.parametrize("divided", [True, False])
@pytest.mark.parametrize("directed", [True, False])
def test_baselines_sum_by_the_weights_of_edges(directed: bool, divided: bool, tmp_path: Path) -> None:
    store, config = Store.open(write_weighted_graph(tmp_path / "p", directed, 3)), config_of("sgc", 1)
    config = replace(config, relation=RelationConfig(order=1, weights=True))
    kind = PropagatedGraph if divided else InMemoryGraph
    graph = kind(store, Hops.open(store, 1, weighted=True), config.relation, World(), torch.float64)
    model, matrix = build(config, store), weight_matrix(store, directed)
    assert isinstance(model, SGC)
    normalized = matrix / (matrix.sum(1, keepdim=True) * matrix.sum(0)).sqrt()
    rows = torch.linalg.matrix_power(normalized, model.model.layers) @ store.take(torch.arange(60)).double()
    wanted = rows @ model.input.weight.t() + model.convolutions[-1].bias
    assert difference(graph.evaluate(model, 4).logits, wanted) < 1e-10


def test_edges_that_dropedge_leaves_keep_their_weights(tmp_path: Path) -> None:
    store, config = Store.open(write_weighted_graph(tmp_path / "p", True, 3)), config_of("dropedge", 1)
    model, everyone = build(config, store).train(), torch.arange(60)
    assert isinstance(model, DropEdge)
    relation = Relation.build(Hops.open(store, 1, weighted=True).induced(1, everyone), dtype=torch.float64)
    left = model.sampled(relation, Draw(0, 3, everyone))
    assert left.adjacency.num_edges < relation.adjacency.num_edges
    ends = left.adjacency.targets.long(), left.adjacency.sources.long()
    kept = torch.zeros(60, 60, dtype=torch.float64)
    kept[ends] = weight_matrix(store, directed=True)[ends]
    wanted = kept / (kept.sum(1, keepdim=True) * kept.sum(0)).sqrt()
    assert difference(left.edge_weights, wanted[ends]) < 1e-10
