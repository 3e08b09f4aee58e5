"""GLCN equals its definition with whole matrices, over edges and over all pairs, and holds few differences at once."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nfdist import seeds, settings
from nfdist.config import GlcnConfig, ModelConfig
from nfdist.errors import ConfigError
from nfdist.graph.relation import build_relations
from nfdist.model.baselines import compared_pairs
from nfdist.model.baselines.glcn import GLCN
from nfdist.model.build import build_model
from nfdist.model.protocol import Draw
from nfdist.sparse.adjacency import Adjacency
from nfdist.world import World
from tests.comparing import assert_same, difference
from tests.model.baselines.reference import glcn, glcn_graph
from tests.model.building import jittered
from tests.model.largest_tensor import LargestTensor
from tests.model.reference import adjacency_matrix, thinned
from tests.training.building import build_partition, config_of, run_training

NODES, FEATURES, OUTPUTS = 20, 6, 3
MODEL = ModelConfig(name="glcn", channels=5, dropout=0.4, glcn=GlcnConfig(width=4, sparsity=0.3))
ENDS = torch.randint(NODES, (2, 50), generator=seeds.generator(0, "graph"))
GRAPH = Adjacency.from_edges(ENDS[0], ENDS[1], NODES)
OPTIONS = {
    "usual": MODEL,
    "no norm, dropout of features": replace(MODEL, norm="none", input_dropout=0.3),
    "elu": replace(MODEL, activation="elu", dropout=0.0),
}


def inputs() -> tuple[Tensor, Draw]:
    features = torch.randn(NODES, FEATURES, generator=seeds.generator(1, "features"), dtype=torch.float64)
    return features, Draw(seed=4, step=17, node_ids=torch.randperm(1000, generator=seeds.generator(2, "ids"))[:NODES])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("order", [0, 1], ids=["all pairs", "edges"])
@pytest.mark.parametrize("options", OPTIONS)
def test_it_equals_its_definition(options: str, order: int, training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compared_pairs, "PAIRS_AT_ONCE", 45)  # several pieces
    model = jittered(GLCN(FEATURES, OUTPUTS, OPTIONS[options], seed=3)).train(training)
    features, draw = inputs()
    output = model(features, build_relations(GRAPH, order, dtype=torch.float64), draw, auxiliary_scale=0.7)
    dropped, pattern = thinned(model, features, draw), adjacency_matrix(GRAPH, torch.float64) if order else None
    logits, (learned, loss) = glcn(model, dropped, pattern, draw), glcn_graph(model, dropped, pattern)
    assert (learned > 0).sum() == (NODES**2 if pattern is None else pattern.sum())
    mine = torch.cat([output.logits.flatten(), output.auxiliary_loss[None]])
    assert_same(mine, torch.cat([logits.flatten(), 0.7 * loss[None]]), list(model.parameters()), 1e-10)


def test_over_all_pairs_the_graph_is_that_over_all_edges() -> None:
    model, (features, draw) = jittered(GLCN(FEATURES, OUTPUTS, MODEL, seed=3)), inputs()
    everything = torch.cartesian_prod(torch.arange(NODES), torch.arange(NODES)).t()
    whole = build_relations(Adjacency.from_edges(everything[0], everything[1], NODES), 1, dtype=torch.float64)
    by_edges, by_pairs = (model(features, given, draw, auxiliary_scale=1.0) for given in (whole, []))
    assert_same(by_edges.logits, by_pairs.logits, list(model.parameters()), 1e-10)
    assert difference(by_edges.auxiliary_loss[None], by_pairs.auxiliary_loss[None]) < 1e-12


def test_differences_of_all_pairs_are_never_there_at_once() -> None:
    nodes = 150
    model = GLCN(FEATURES, OUTPUTS, replace(MODEL, glcn=GlcnConfig(width=40)))
    with LargestTensor() as largest:
        output = model(torch.randn(nodes, FEATURES), [], Draw(1, 2, torch.arange(nodes)), auxiliary_scale=1.0)
        (output.logits.sum() + output.auxiliary_loss).backward()
    assert nodes**2 <= largest.elements < compared_pairs.PAIRS_AT_ONCE * 41 < nodes**2 * 40


def test_all_pairs_beyond_this_host_are_refused_with_how_many_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings.parse({}, ["model.name=glcn", "relation.order=0", "train.edge_loss=0.1"])
    monkeypatch.setattr("nfdist.model.build.host_bytes", lambda: 4 << 30)
    with pytest.raises(ConfigError, match=r"24 bytes for every pair of 20,000 nodes, about 9 GiB, and this host has 4"):
        build_model(config, FEATURES, OUTPUTS, num_nodes=20_000)
    build_model(config, FEATURES, OUTPUTS, num_nodes=11_500)
    build_model(settings.parse({}, ["model.name=glcn", "relation.order=1"]), FEATURES, OUTPUTS, num_nodes=10**9)


@pytest.mark.parametrize("order", [0, 1])
def test_it_is_trained_on_labels_and_its_graph(order: int, tmp_path: Path) -> None:
    own = ("model.name=glcn", f"relation.order={order}", "relation.scope=rank", "attention.scope=rank")
    options = ("train.edge_loss=0.5", "train.batch_nodes=0", "train.epochs=3")
    graph = build_partition(tmp_path / "graph", 1)
    assert run_training(World(), settings.dump(config_of(graph, tmp_path / "run", *own, *options))) is not None
    lines = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert '"edge_loss": 0.0' not in lines
