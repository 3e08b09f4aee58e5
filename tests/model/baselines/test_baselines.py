"""Every baseline equals its dense definition, in outputs and gradients, and its draws belong to nodes and edges."""

from dataclasses import replace
from typing import Any, NoReturn

import pytest
import scipy.sparse
import torch

from nfdist import seeds
from nfdist.config import Config, DropEdgeConfig, ModelConfig, RelationConfig, TrainConfig, VgcnConfig
from nfdist.errors import ConfigError
from nfdist.graph.relation import Relation, build_relations
from nfdist.model.baselines import gat
from nfdist.model.baselines.baseline import Baseline
from nfdist.model.baselines.gat import GAT
from nfdist.model.baselines.gcn import DropEdge
from nfdist.model.build import MODELS, build_model
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.csr import sparse_csr
from tests.comparing import assert_same, difference, gradients
from tests.model.baselines.reference import dense_logits
from tests.model.building import jittered
from tests.needs import MODELS_LEFT_OUT, needs_dgl

NODES, FEATURES, OUTPUTS, MOST_ID = 43, 9, 5, 99
NAMES = sorted(MODELS.keys() - {"nodeformer", "idgl"} - MODELS_LEFT_OUT)  # it learns its graph: test_idgl.py
ENDS = torch.randint(NODES, (2, 120), generator=seeds.generator(0, "graph"))
GRAPH = Adjacency.from_edges(ENDS[0], ENDS[1], NODES)  # directed, so that in- and out-degrees differ

OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "one layer": {"layers": 1},
    "three layers, one head, ELU": {"layers": 3, "heads": 1, "activation": "elu"},
    "no norm, all states": {"norm": "none", "jumping_knowledge": True},
    "dropout": {"layers": 3, "dropout": 0.5},
    "batch norm": {"norm": "batch"},
    "dropout of features": {"input_dropout": 0.5},
}


def build(name: str, options: str = "defaults", seed: int = 3) -> Baseline:
    own = DropEdgeConfig(edge_dropout=0.4 if name == "dropedge" else 0.0)
    few = VgcnConfig(
        edge_prior=0.7, other_prior=0.05, draw_temperature=0.5, prior_temperature=0.4, samples=2, eval_samples=2
    )
    settings: dict[str, Any] = {"layers": 2, "channels": 8, "heads": 2, "dropedge": own, "vgcn": few}
    model = ModelConfig(name=name, **(settings | OPTIONS[options]))
    config = Config(model=model, relation=RelationConfig(order=1), train=TrainConfig(edge_loss=0.0))
    net = build_model(config, FEATURES, OUTPUTS, seed, num_nodes=MOST_ID + 1)
    assert isinstance(net, Baseline)
    return net.double()


def inputs() -> tuple[torch.Tensor, Draw]:
    features = torch.randn(NODES, FEATURES, generator=seeds.generator(1, "features"), dtype=torch.float64)
    features[features.abs() < 0.5] = 0
    return features, Draw(
        seed=4, step=17, node_ids=torch.randperm(MOST_ID + 1, generator=seeds.generator(2, "ids"))[:NODES]
    )


def relations_of(graph: Adjacency) -> list[Relation]:
    return build_relations(graph, 1, dtype=torch.float64)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_a_baseline_equals_its_dense_definition(name: str, options: str, training: bool) -> None:
    net = jittered(build(name, options)).train(training)
    features, draw = inputs()
    output = net(features, relations_of(GRAPH), draw)
    assert output.auxiliary_loss is None
    assert_same(output.logits, dense_logits(net, features, GRAPH, draw), list(net.parameters()), 1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_float32_stays_close_to_float64_in_outputs_and_gradients(name: str) -> None:
    net = jittered(build(name, "dropout"))
    features, draw = inputs()
    exact = net(features, relations_of(GRAPH), draw).logits
    wanted = gradients(exact, list(net.parameters()))
    rounded = net.float()(features.float(), build_relations(GRAPH, 1), draw).logits.double()
    assert difference(rounded, exact) < 1e-4
    for mine, theirs in zip(gradients(rounded, list(net.parameters())), wanted, strict=True):
        assert difference(mine.double(), theirs, least=1e-2) < 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_sparse_rows_of_features_are_as_good_as_dense_ones(name: str) -> None:
    net = jittered(build(name, "dropout"))
    features, draw = inputs()
    relations = relations_of(GRAPH)
    wanted = net(features, relations, draw).logits
    rows = scipy.sparse.csr_array(features.numpy())
    indptr, indices, values = (torch.from_numpy(part) for part in (rows.indptr, rows.indices, rows.data))
    sparse = sparse_csr(indptr.long(), indices.long(), values, (NODES, FEATURES))
    assert_same(net(sparse, relations, draw).logits, wanted, list(net.parameters()), 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_every_node_and_edge_keeps_its_draws_when_the_rows_are_shuffled(name: str) -> None:
    net = jittered(build(name, "dropout"))
    features, draw = inputs()
    order = torch.randperm(NODES, generator=seeds.generator(5, "order"))
    place = torch.empty_like(order)
    place[order] = torch.arange(NODES)
    shuffled = Adjacency.from_edges(place[GRAPH.sources.long()], place[GRAPH.targets.long()], NODES)
    plain = net(features, relations_of(GRAPH), draw).logits
    again = net(features[order], relations_of(shuffled), replace(draw, node_ids=draw.node_ids[order])).logits
    assert difference(again, plain[order]) < 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_weights_and_draws_are_functions_of_the_seed_and_the_global_state_is_untouched(name: str) -> None:
    state = torch.random.get_rng_state()
    one, again, other = (build(name, "dropout", seed) for seed in (1, 1, 2))
    features, draw = inputs()
    first, second = (net(features, relations_of(GRAPH), draw).logits for net in (one, again))
    first.sum().backward()
    assert torch.equal(state, torch.random.get_rng_state())
    assert torch.equal(first, second)
    drawn = [pair for pair in zip(one.parameters(), other.parameters(), strict=True) if pair[0].ndim > 1]
    assert drawn
    assert not any(torch.equal(*pair) for pair in drawn)
    random = name != "sgc"
    assert torch.equal(one(features, relations_of(GRAPH), replace(draw, step=18)).logits, first) != random
    one.eval()
    plain = one(features, relations_of(GRAPH), draw).logits
    assert torch.equal(plain, one(features, relations_of(GRAPH), replace(draw, step=18)).logits)
    other_seed = one(features, relations_of(GRAPH), replace(draw, seed=9)).logits
    assert torch.equal(plain, other_seed) == (name != "vgcn")  # which draws graphs in evaluation, too


@needs_dgl
def test_the_same_layer_has_other_weights_under_another_name() -> None:
    net = build("gat", "three layers, one head, ELU")
    assert isinstance(net, GAT)
    attentions: list[Any] = list(net.attentions)  # DGL's, which have no types
    assert not torch.equal(attentions[0].attn_l, attentions[1].attn_l)
    assert not torch.equal(attentions[0].attn_l, attentions[0].attn_r)


def test_without_dgl_gat_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_dgl() -> NoReturn:
        raise ConfigError("DGL cannot be imported (no module): use Python 3.12")

    monkeypatch.setattr(gat, "dgl_layers", no_dgl)
    with pytest.raises(ConfigError, match=r"^DGL cannot be imported \(no module\): use Python 3\.12$"):
        build("gat")


def test_dropedge_leaves_out_its_share_of_the_edges_and_no_loop() -> None:
    ends = torch.randint(500, (2, 20_000), generator=seeds.generator(6, "edges"))
    whole = Adjacency.from_edges(ends[0], ends[1], 500).power(1)
    net = build("dropedge")
    assert isinstance(net, DropEdge)
    relation = Relation.build(whole, dtype=torch.float64)
    steps = [net.sampled(relation, Draw(0, step, torch.arange(500))).adjacency for step in range(2)]
    loops, others = 500, whole.num_edges - 500
    for graph in steps:
        assert int((graph.sources == graph.targets).sum()) == loops
        assert abs((graph.num_edges - loops) / others - 0.6) < 0.02
    both = set(edges(steps[0])) & set(edges(steps[1]))
    assert abs((len(both) - loops) / others - 0.36) < 0.02
    assert both < set(edges(whole))
    assert net.eval().messages(relation, Draw(0, 0, torch.arange(500))) is relation


def edges(graph: Adjacency) -> list[tuple[int, int]]:
    return list(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_an_empty_batch_has_no_logits_and_can_be_differentiated(name: str, dtype: torch.dtype) -> None:
    net = build(name, "dropout").to(dtype)
    none = Adjacency(torch.zeros(1, dtype=torch.int32), torch.empty(0, dtype=torch.int32))
    features, draw = torch.empty(0, FEATURES, dtype=dtype), Draw(0, 0, torch.empty(0, dtype=torch.int64))
    logits = net(features, build_relations(none, 1, dtype=dtype), draw).logits
    assert logits.shape == (0, OUTPUTS)
    logits.sum().backward()


def test_other_names_are_nodeformer() -> None:
    assert isinstance(build_model(Config(), FEATURES, OUTPUTS), NodeFormer)
    assert build_model(Config(), FEATURES, OUTPUTS).num_outputs == OUTPUTS
    for name in NAMES:
        assert (build(name).num_features, build(name).num_outputs) == (FEATURES, OUTPUTS)


def test_bad_input_is_named() -> None:
    net = build("gcn")
    features, draw = inputs()
    relations = relations_of(GRAPH)
    with pytest.raises(ConfigError, match=r"features must be \[nodes, 9\], got \[43, 8\]"):
        net(features[:, :8], relations, draw)
    with pytest.raises(ConfigError, match=r"model\.name = gcn needs 1 relations, one for each hop, got 0"):
        net(features, [], draw)
    with pytest.raises(ConfigError, match="relation 1 has 43 nodes and 43 sources, given are 42 and 42"):
        net(features[1:], relations, replace(draw, node_ids=draw.node_ids[1:]))
    with pytest.raises(ConfigError, match="needs input features and outputs, got 0 and 5"):
        build_model(
            Config(model=ModelConfig(name="mlp"), relation=RelationConfig(order=0), train=TrainConfig(edge_loss=0.0)),
            0,
            5,
        )
