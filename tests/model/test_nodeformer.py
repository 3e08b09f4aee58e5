"""The model equals its dense definition with every option, in outputs and in the gradient of every parameter."""

from dataclasses import replace

import pytest
import torch

from nfdist import seeds
from nfdist.config import RelationKind
from nfdist.errors import ConfigError
from nfdist.graph.relation import Relation, build_relations
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw
from nfdist.sparse.adjacency import Adjacency
from tests.comparing import assert_same, difference
from tests.model.building import (
    ATTENTION,
    FEATURES,
    GRAPH,
    LABEL_INPUTS,
    MODEL,
    NODES,
    OPTIONS,
    OUTPUTS,
    RELATION,
    build,
    given_labels,
    inputs,
    jittered,
)
from tests.model.reference import dense_forward

KINDS: tuple[RelationKind, ...] = ("pattern", "power")


def relations_of(net: NodeFormer) -> list[Relation]:
    order, normalize = net.relation.num_patterns, net.relation.normalize
    return build_relations(GRAPH, order, normalize, torch.float64) if order else []


@pytest.mark.parametrize("chunk_elements", [1 << 20, 64])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("options", OPTIONS)
def test_the_model_equals_its_dense_definition(
    options: str, training: bool, chunk_elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nfdist.attention.ops.chunks._CHUNK_ELEMENTS", {"cpu": chunk_elements})
    net = build(options).train(training)
    features, draw = inputs()
    if options in LABEL_INPUTS:
        draw = replace(draw, labels=given_labels(NODES, *([OUTPUTS] if net.branch else [])))
    scale = 0.5 if net.relation.order else 0.0
    output = net(features, relations_of(net), draw, auxiliary_scale=scale)
    logits, likelihood = dense_forward(net, features, GRAPH, draw)
    if output.auxiliary_loss is not None:
        assert_same(output.auxiliary_loss, scale * likelihood, used(net, likelihood), 1e-9)
    assert_same(output.logits, logits, used(net, logits), 1e-9)


def used(net: NodeFormer, output: torch.Tensor) -> list[torch.Tensor]:
    parameters = [parameter for parameter in net.parameters() if parameter.numel()]
    reached = torch.autograd.grad(output.sum(), parameters, retain_graph=True, allow_unused=True)
    return [parameter for parameter, gradient in zip(parameters, reached, strict=True) if gradient is not None]


def test_a_first_power_is_the_pattern_to_the_bit() -> None:
    features, draw = inputs()
    found = []
    for kind in KINDS:
        relation = replace(RELATION, order=1, kind=kind)
        net = jittered(NodeFormer(FEATURES, OUTPUTS, MODEL, ATTENTION, relation, seed=3))
        output = net(features, relations_of(net), draw, auxiliary_scale=0.5)
        (output.logits.square().sum() + output.auxiliary_loss).backward()
        found.append([output.logits, *(parameter.grad for parameter in net.parameters())])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_powers_take_one_relation() -> None:
    net = build("powers")
    features, draw = inputs()
    with pytest.raises(ConfigError, match=r"relation\.order = 2 by powers needs 1 relations, one for each hop, got 2"):
        net(features, build_relations(GRAPH, 2, dtype=torch.float64), draw)


def test_float32_stays_close_to_float64() -> None:
    net = build("defaults")
    features, draw = inputs()
    exact = net(features, relations_of(net), draw).logits
    relations = build_relations(GRAPH, 2)
    assert difference(net.float()(features.float(), relations, draw).logits.double(), exact) < 1e-4


def test_every_node_keeps_its_noise_and_dropout_when_the_rows_are_shuffled() -> None:
    net = build("dropout")
    features, draw = inputs()
    order = torch.randperm(NODES, generator=seeds.generator(5, "order"))
    place = torch.empty_like(order)
    place[order] = torch.arange(NODES)
    shuffled = Adjacency.from_edges(place[GRAPH.sources.long()], place[GRAPH.targets.long()], NODES)
    plain = net(features, relations_of(net), draw).logits
    again = net(
        features[order], build_relations(shuffled, 2, dtype=torch.float64), Draw(4, 17, draw.node_ids[order])
    ).logits
    assert difference(again, plain[order]) < 1e-12


def test_evaluation_depends_on_the_seed_and_on_the_step_only_when_asked() -> None:
    net = build("dropout").eval()
    features, draw = inputs()
    first = net(features, relations_of(net), draw).logits
    assert torch.equal(first, net(features, relations_of(net), replace(draw, step=99)).logits)
    stepping = NodeFormer(FEATURES, OUTPUTS, net.model, replace(net.attention, eval_directions="step"), net.relation)
    stepping.double().eval().load_state_dict(net.state_dict())
    one, other, again = (
        stepping(features, relations_of(net), replace(draw, step=step)).logits for step in (draw.step, 99, draw.step)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert not torch.equal(first, net(features, relations_of(net), replace(draw, seed=5)).logits)
    net.train()
    assert not torch.equal(
        net(features, relations_of(net), draw).logits, net(features, relations_of(net), replace(draw, step=99)).logits
    )


def test_evaluation_has_a_temperature_of_its_own_only_when_asked() -> None:
    features, draw = inputs()
    plain = build("defaults").eval()
    relations = relations_of(plain)
    same, other = (
        NodeFormer(FEATURES, OUTPUTS, MODEL, replace(ATTENTION, eval_temperature=value), RELATION).double().eval()
        for value in (0.25, 1.0)
    )
    for net in (same, other):
        net.load_state_dict(plain.state_dict())
    wanted = plain(features, relations, draw).logits
    assert torch.equal(same(features, relations, draw).logits, wanted)
    assert not torch.equal(other(features, relations, draw).logits, wanted)


def test_weights_are_a_function_of_the_seed_and_the_global_state_is_untouched() -> None:
    state = torch.random.get_rng_state()
    one, again, other = (NodeFormer(FEATURES, OUTPUTS, MODEL, seed=seed) for seed in (1, 1, 2))
    features, draw = inputs()
    net = build("dropout")
    net(features, relations_of(net), draw, auxiliary_scale=1.0).logits.sum().backward()
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), again.parameters(), strict=True))
    assert not torch.equal(one.input.weight, other.input.weight)


def test_bad_input_is_named() -> None:
    net = build("defaults")
    features, draw = inputs()
    relations = relations_of(net)
    with pytest.raises(ConfigError, match=r"features must be \[nodes, 9\], got \[43, 8\]"):
        net(features[:, :8], relations, draw)
    with pytest.raises(ConfigError, match=r"relation\.order = 2 needs 2 relations, one for each hop, got 1"):
        net(features, relations[:1], draw)
    with pytest.raises(ConfigError, match=r"node_ids must be \[43\]"):
        net(features, relations, replace(draw, node_ids=draw.node_ids[1:]))
    broken = features.clone()
    broken[[7, 30], 2] = torch.tensor([float("nan"), float("inf")], dtype=torch.float64)
    with pytest.raises(ConfigError, match="features of 2 nodes are NaN or infinite, first at row 7"):
        net(broken, relations, draw)
    with pytest.raises(ConfigError, match="relation 1 has 43 nodes and 43 sources, given are 42 and 42"):
        net(features[1:], relations, replace(draw, node_ids=draw.node_ids[1:]))
    no_graph = build("no graph")
    with pytest.raises(ConfigError, match="edge loss needs a graph"):
        no_graph(features, [], draw, auxiliary_scale=1.0)
    with pytest.raises(ConfigError, match="needs input features and outputs, got 0 and 5"):
        NodeFormer(0, 5)
    labels = given_labels(NODES)
    with pytest.raises(ConfigError, match="labels are given to a model that takes none: train it with"):
        net(features, relations, replace(draw, labels=labels))
    taking = build("label inputs")
    with pytest.raises(ConfigError, match="the model takes labels as inputs: give some, and -1 for"):
        taking(features, relations, draw)
    with pytest.raises(ConfigError, match=r"labels given as inputs must be \[43\] or \[43, 5\], got \[42\]"):
        taking(features, relations, replace(draw, labels=labels[1:]))
    with pytest.raises(ConfigError, match="label 5, given as an input, is outside 0 to 4, and -1 for none"):
        taking(features, relations, replace(draw, labels=torch.full_like(labels, 5)))
    with pytest.raises(ConfigError, match="label -2, given as an input, is outside 0 to 1"):
        taking(features, relations, replace(draw, labels=torch.full((43, 5), -2)))
