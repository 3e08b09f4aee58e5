"""IDGL equals its definition with whole matrices, hears everybody through anchors at linear cost, and is trained."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nfdist import seeds, settings
from nfdist.cli.main import main
from nfdist.config import IdglConfig, ModelConfig
from nfdist.errors import ConfigError
from nfdist.graph.relation import build_relations
from nfdist.graph.split import split_of
from nfdist.model.baselines import idgl
from nfdist.model.baselines.affinity import CROWDED, DISCONNECTED, UNEVEN, Affinity
from nfdist.model.baselines.idgl import IDGL
from nfdist.model.protocol import Draw, Output
from nfdist.model.task import Task
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.csr import sparse_csr
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import Store
from nfdist.world import World
from tests.comparing import assert_same, difference
from tests.model.building import jittered
from tests.model.largest_tensor import LargestTensor
from tests.model.reference import adjacency_matrix, weighted
from tests.training.building import build_partition, config_of, run_training

NODES, FEATURES, OUTPUTS = 29, 11, 4
OWN = IdglConfig(refinements=3, similarity_threshold=0.1)
MODEL = ModelConfig(name="idgl", channels=6, heads=3, dropout=0.4, idgl=OWN)
ENDS = torch.randint(NODES, (2, 70), generator=seeds.generator(0, "graph"))
GRAPH = Adjacency.from_edges(ENDS[0], ENDS[1], NODES)
RELATIONS = build_relations(GRAPH, 1, dtype=torch.float64)
OPTIONS = {
    "all pairs": MODEL,
    "no norm, elu": replace(MODEL, norm="none", activation="elu"),
    "learned graph alone": replace(MODEL, idgl=replace(OWN, graph_share=0.0)),
    "input graph alone": replace(MODEL, idgl=replace(OWN, graph_share=1.0)),
    "one round": replace(MODEL, idgl=replace(OWN, refinements=0)),
    "anchors": replace(MODEL, idgl=replace(OWN, anchors=7)),
    "all nodes as anchors": replace(MODEL, idgl=replace(OWN, anchors=NODES)),
    "more anchors than nodes": replace(MODEL, idgl=replace(OWN, anchors=NODES + 5)),
}


def build(model: ModelConfig) -> IDGL:
    return jittered(IDGL(FEATURES, OUTPUTS, model, seed=3))


def inputs() -> tuple[Tensor, Draw]:
    features = torch.randn(NODES, FEATURES, generator=seeds.generator(1, "features"), dtype=torch.float64)
    features[features < 0.2] = 0  # rows share some channels only, and one has none at all
    features[5] = 0
    node_ids = torch.randperm(1000, generator=seeds.generator(2, "ids"))[:NODES]
    return features, Draw(seed=4, step=17, node_ids=node_ids)


def compressed(features: Tensor) -> Tensor:
    rows, columns = features.nonzero(as_tuple=True)
    indptr = torch.tensor([0, *torch.bincount(rows, minlength=len(features))]).cumsum(0)
    return sparse_csr(indptr, columns, features[rows, columns], (len(features), features.shape[1]))


def cosines(rows: Tensor, scales: Tensor, threshold: float) -> Tensor:
    """All weights a_ij, pair by pair."""
    heads = [F.cosine_similarity((scale * rows)[:, None], (scale * rows)[None], dim=2) for scale in scales]
    similarity = torch.stack(heads).mean(0)
    return similarity * (similarity > threshold)


def row_normalized(weights: Tensor) -> Tensor:
    return weights / weights.sum(1, keepdim=True).clamp(min=1e-12)


def unevenness(graph: Tensor, points: Tensor) -> Tensor:
    """The roughness of a graph, as a sum over pairs."""
    distances = (points[:, None] - points[None]).square().sum(2)
    smooth, sparse = (graph * distances).mean() / 2, graph.square().mean()
    return UNEVEN * smooth + CROWDED * sparse - DISCONNECTED * graph.sum(1).clamp(min=1e-12).log().mean()


def defined(model: IDGL, features: Tensor, draw: Draw) -> tuple[list[Tensor], Tensor]:
    """The logits of every round and the mean roughness, with Ã written out."""
    config, anchors = model.model.idgl, model._anchors(draw)
    given = weighted(adjacency_matrix(GRAPH, torch.float64), True)
    graphs, rounds, rough = list[Tensor](), list[Tensor](), list[Tensor]()
    learned, rows, scales = list[Tensor](), features, model.feature_scales.weight
    while True:
        pairs = cosines(rows, scales, config.similarity_threshold)
        weights = pairs if anchors is None else pairs[:, anchors]
        learned.append(row_normalized(weights))
        if anchors is not None:
            learned[-1] = learned[-1] @ row_normalized(weights.t())
        graphs.append(weights)
        among = pairs if anchors is None else weights.t() @ row_normalized(weights)
        rough.append(unevenness(among, features if anchors is None else features[anchors]))
        share = 1.0 if len(learned) == 1 else 0.1
        mixed = (share * learned[-1] + (1 - share) * learned[0]) * (1 - config.graph_share)
        mixed = mixed + config.graph_share * given
        rows = model.activate(mixed @ model.input(features), 0, draw)
        rounds.append(mixed @ model.output(rows))
        settled = len(graphs) > 1 and (graphs[-1] - graphs[-2]).square().sum() < 4e-5 * graphs[0].square().sum()
        if settled or len(rounds) == config.refinements + 1:
            return rounds, torch.stack(rough).mean()
        scales = model.hidden_scales.weight


def used(model: IDGL) -> list[Tensor]:
    """The parameters that matter to the logits."""
    left_out = ("feature_scales",) * (model.model.idgl.graph_share == 1) + ("hidden_scales",) * (
        model.model.idgl.graph_share == 1 or model.model.idgl.refinements == 0
    )
    return [parameter for name, parameter in model.named_parameters() if not name.startswith(left_out)]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_it_equals_its_definition(options: str, sparse: bool, training: bool) -> None:
    model = build(OPTIONS[options]).train(training)
    features, draw = inputs()
    rounds, rough = defined(model, features, draw)
    output = model(compressed(features) if sparse else features, RELATIONS, draw, auxiliary_scale=0.7)
    if model.model.idgl.graph_share == 1:
        assert_same(output.logits, rounds[-1], used(model), 1e-10)
        return
    assert len(rounds) == len(output.earlier) + 1
    assert len(rounds) > 2 or model.model.idgl.refinements == 0
    mine = torch.cat([torch.stack([*output.earlier, output.logits]).flatten(), output.auxiliary_loss[None]])
    theirs = torch.cat([torch.stack(rounds).flatten(), 0.7 * rough[None]])
    assert_same(mine, theirs, used(model), 1e-10)


def test_without_an_edge_scale_there_is_no_loss_of_its_own() -> None:
    features, draw = inputs()
    assert build(MODEL)(features, RELATIONS, draw).auxiliary_loss is None


def test_rounds_end_when_the_graph_converges(monkeypatch: pytest.MonkeyPatch) -> None:
    features, draw = inputs()
    model = build(replace(MODEL, idgl=replace(OWN, refinements=50), dropout=0.0))
    natural = len(model(features, RELATIONS, draw).earlier)
    rounds, _ = defined(model, features, draw)
    assert natural == len(rounds) - 1 < 50
    monkeypatch.setattr(idgl, "TOLERANCE", 1e9)
    assert len(model(features, RELATIONS, draw).earlier) == 1


@pytest.mark.parametrize("options", ["all pairs", "anchors"])
@pytest.mark.parametrize("training", [True, False])
def test_nothing_depends_on_the_order_of_the_rows(options: str, training: bool) -> None:
    model = build(OPTIONS[options]).train(training)
    features, draw = inputs()
    order = torch.randperm(NODES, generator=seeds.generator(6, "order"))
    places = order.argsort()
    turned = Adjacency.from_edges(places[GRAPH.sources.long()], places[GRAPH.targets.long()], NODES)
    here = model(features, RELATIONS, draw, auxiliary_scale=1.0)
    relations = build_relations(turned, 1, dtype=torch.float64)
    there = model(features[order], relations, replace(draw, node_ids=draw.node_ids[order]), auxiliary_scale=1.0)
    assert difference(there.logits, here.logits[order]) < 1e-10
    assert difference(there.auxiliary_loss[None], here.auxiliary_loss[None]) < 1e-10


def test_anchors_are_drawn_anew_in_training_and_from_the_seed_in_evaluation() -> None:
    model, (_, draw) = build(OPTIONS["anchors"]), inputs()
    later, other = replace(draw, step=18), replace(draw, seed=5)

    def chosen(draw: Draw) -> set[int]:
        anchors = model._anchors(draw)
        assert anchors is not None
        return set(draw.node_ids[anchors].tolist())

    assert len(chosen(draw)) == 7
    assert chosen(draw) != chosen(later)
    model.eval()
    assert chosen(draw) == chosen(later)
    assert chosen(draw) != chosen(other)


def test_through_all_nodes_as_anchors_one_hears_what_two_steps_bring() -> None:
    features, _ = inputs()
    scales = build(MODEL).feature_scales.weight
    order = torch.randperm(NODES, generator=seeds.generator(6, "order"))
    direct = Affinity.learn(features, features, scales, 0.1, anchored=False)
    anchored = Affinity.learn(features, features[order], scales, 0.1, anchored=True)
    assert difference(anchored.weights, direct.weights[:, order]) < 1e-12
    assert_same(anchored.spread(features), direct.spread(direct.spread(features)), [scales], 1e-10)


def test_with_anchors_no_pass_holds_all_pairs() -> None:
    nodes = 4000
    ends = torch.randint(nodes, (2, 9000), generator=seeds.generator(0, "ends"))
    relations = build_relations(Adjacency.from_edges(ends[0], ends[1], nodes), 1)
    model = IDGL(FEATURES, OUTPUTS, replace(MODEL, idgl=replace(OWN, anchors=20)))
    with LargestTensor() as largest:
        output = model(torch.ones(nodes, FEATURES), relations, Draw(1, 2, torch.arange(nodes)), auxiliary_scale=1.0)
        (sum(logits.sum() for logits in (output.logits, *output.earlier)) + output.auxiliary_loss).backward()
    assert nodes * 20 <= largest.elements <= nodes * 20 * 3


def test_a_batch_without_nodes_has_no_loss() -> None:
    empty = Adjacency.from_edges(torch.zeros(0).long(), torch.zeros(0).long(), 0)
    draw = Draw(0, 0, torch.zeros(0).long())
    relations = build_relations(empty, 1, dtype=torch.float64)
    output: Output = build(MODEL)(torch.zeros(0, FEATURES).double(), relations, draw, auxiliary_scale=1.0)
    assert output.logits.shape == (0, OUTPUTS)
    assert output.auxiliary_loss is None


def test_too_many_pairs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idgl, "MAX_NODES", NODES - 1)
    features, draw = inputs()
    with pytest.raises(ConfigError, match=r"every pair of 29 nodes.*set model\.idgl\.anchors"):
        build(MODEL)(features, RELATIONS, draw)
    build(OPTIONS["anchors"])(features, RELATIONS, draw)


@pytest.mark.parametrize("anchors", [0, 30])
def test_it_is_trained_and_evaluated_as_any_model(
    anchors: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, run = build_partition(tmp_path / "graph", 1), tmp_path / "run"
    own = (
        "model.name=idgl",
        "model.standardize=false",
        "relation.order=1",
        "relation.scope=rank",
        "attention.scope=rank",
        "train.edge_loss=0.3",
    )
    whole = ("train.batch_nodes=0", "train.evaluate_every=1", f"model.idgl.anchors={anchors}")
    config = config_of(graph, run, *own, *whole)
    result = run_training(World(), settings.dump(config))
    assert result is not None

    store, line = Store.open(graph), json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
    everyone = torch.arange(store.num_nodes)
    model = IDGL(store.num_features, store.num_classes, config.model, seed=0).double()
    relations = build_relations(store.induced(everyone), 1, dtype=torch.float64)
    output = model(store.take(everyone).double(), relations, Draw(0, 0, everyone), auxiliary_scale=1.0)
    train = split_of(store, config.data, 0) == TRAIN
    task, labels = Task("single", store.num_classes), store.labels(everyone)[train]
    losses = [task.loss(logits[train], labels).mean.item() for logits in (output.logits, *output.earlier)]
    assert line["supervised_loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-10)
    assert line["edge_loss"] == pytest.approx(output.auxiliary_loss.item(), rel=1e-10)

    assert main(["evaluate", str(run), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert scores["test"] == pytest.approx(result["best"]["test"], abs=1e-12)
