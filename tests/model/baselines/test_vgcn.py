"""VGCN equals its definition, pair by pair: drawn graphs, what they cost, gradients and the moves they lead to."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nfdist import seeds, settings
from nfdist.config import ModelConfig, VgcnConfig
from nfdist.errors import ConfigError
from nfdist.graph.relation import build_relations
from nfdist.model.baselines import concrete
from nfdist.model.baselines.concrete import EdgePrior, Posterior, logistic, num_pairs
from nfdist.model.baselines.vgcn import VGCN
from nfdist.model.build import build_model, check_task
from nfdist.model.protocol import Draw
from nfdist.sparse.adjacency import Adjacency
from nfdist.training.optimization import make_optimizer
from tests.comparing import assert_same, difference
from tests.model.baselines.reference import vgcn_answers
from tests.model.building import jittered
from tests.model.reference import adjacency_matrix

NODES, FEATURES, OUTPUTS, MOST_ID = 20, 6, 3, 40
OWN = VgcnConfig(
    edge_prior=0.7, other_prior=0.02, draw_temperature=0.6, prior_temperature=0.4, samples=2, eval_samples=3
)
MODEL = ModelConfig(name="vgcn", channels=5, norm="none", vgcn=OWN)
ENDS = torch.randint(NODES, (2, 30), generator=seeds.generator(0, "graph"))
GRAPH = Adjacency.from_edges(ENDS[0], ENDS[1], NODES)  # directed: a pair is joined by an edge in any direction
RELATIONS = build_relations(GRAPH, 1, dtype=torch.float64)


def build(model: ModelConfig = MODEL) -> VGCN:
    return jittered(VGCN(FEATURES, OUTPUTS, model, seed=3, num_nodes=MOST_ID + 1))


def inputs() -> tuple[Tensor, Draw]:
    features = torch.randn(NODES, FEATURES, generator=seeds.generator(1, "features"), dtype=torch.float64)
    ids = torch.randperm(MOST_ID + 1, generator=seeds.generator(2, "ids"))[:NODES]
    return features, Draw(seed=4, step=17, node_ids=ids)


def defined(model: VGCN, features: Tensor, draw: Draw) -> tuple[list[Tensor], Tensor]:
    return vgcn_answers(model, features, adjacency_matrix(GRAPH, torch.float64), draw)


def test_every_draw_and_what_it_costs_equal_their_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concrete, "PAIRS_AT_ONCE", 70)  # several blocks
    model, (features, draw) = build(), inputs()
    output = model(features, RELATIONS, draw, auxiliary_scale=0.7)
    answers, cost = defined(model, features, draw)
    assert len(output.earlier) == len(answers) - 1 == 1
    mine = torch.cat([torch.stack([*output.earlier, output.logits]).flatten(), output.auxiliary_loss[None]])
    theirs = torch.cat([torch.stack(answers).flatten(), 0.7 * cost[None]])
    assert_same(mine, theirs, list(model.parameters()), 1e-10)


def test_an_evaluation_averages_probabilities_over_draws_of_the_seed() -> None:
    model, (features, draw) = build().eval(), inputs()
    answers, _ = defined(model, features, draw)
    output = model(features, RELATIONS, draw, auxiliary_scale=0.7)
    assert len(answers) == 3
    assert output.auxiliary_loss is None
    assert difference(output.logits.softmax(1), torch.stack([rows.softmax(1) for rows in answers]).mean(0)) < 1e-12
    assert torch.equal(output.logits, model(features, RELATIONS, replace(draw, step=3)).logits)
    assert not torch.equal(output.logits, model(features, RELATIONS, replace(draw, seed=3)).logits)


def test_steps_move_as_by_the_definition_and_no_decay_pulls_at_shifts() -> None:
    config = settings.parse({}, ["model.name=vgcn", "relation.order=1", "train.weight_decay=0.3"])
    model, (features, draw) = build(), inputs()
    slow, names = deepcopy(model), [name for name, _ in model.named_parameters()]
    optimizer = make_optimizer(model, config.train)
    decays = [{"params": [p], "weight_decay": 0.3 * (n != "shifts")} for n, p in slow.named_parameters()]
    plain = torch.optim.Adam(decays, lr=config.train.learning_rate)
    for step in range(3):
        own = replace(draw, step=step)
        optimizer.zero_grad()
        output = model(features, RELATIONS, own, auxiliary_scale=0.7)
        (sum(rows.square().sum() for rows in (output.logits, *output.earlier)) + output.auxiliary_loss).backward()
        optimizer.step()
        plain.zero_grad()
        answers, cost = defined(slow, features, own)
        (sum(rows.square().sum() for rows in answers) + 0.7 * cost).backward()
        plain.step()
    assert "shifts" in names
    for mine, theirs in zip(model.parameters(), slow.parameters(), strict=True):
        assert difference(mine, theirs) < 1e-7


def test_a_posterior_that_is_the_prior_costs_nothing_and_joins_as_often() -> None:
    nodes = 400
    ends = torch.randint(nodes, (2, 3000), generator=seeds.generator(0, "graph"))
    graph = Adjacency.from_edges(ends[0], ends[1], nodes)
    prior = EdgePrior(graph, 0.8, 0.05, 0.1)
    drawn, cost = Posterior(prior, torch.arange(nodes), 0.1).draw(torch.zeros(num_pairs(nodes)), 5)
    pairs = adjacency_matrix(graph, torch.float32).tril(-1) + adjacency_matrix(graph, torch.float32).t().tril(-1) > 0
    others = torch.ones(nodes, nodes).tril(-1).bool() & ~pairs
    assert abs(cost.item()) < 1e-4 * num_pairs(nodes)
    assert torch.equal(drawn, drawn.t())
    assert drawn.diagonal().abs().max() == 0
    for chosen, rate in ((pairs, 0.8), (others, 0.05)):
        joined = (drawn[chosen] > 0.5).float().mean().item()
        assert abs(joined - rate) < 4 * (rate * (1 - rate) / int(chosen.sum())) ** 0.5


@pytest.mark.parametrize("nodes", [1, 2, 3, 1000])
def test_weights_say_how_many_nodes_they_are_of(nodes: int) -> None:
    assert VGCN.nodes_of({"shifts": torch.zeros(num_pairs(nodes))}) == nodes


def test_noise_of_pairs_is_logistic_and_belongs_to_their_ids() -> None:
    larger, smaller = torch.arange(300)[:, None] + 300, torch.arange(300)
    noise = logistic(7, larger, smaller, torch.float64)
    uniform = noise.sigmoid().flatten().sort().values
    assert (uniform - torch.linspace(0, 1, len(uniform))).abs().max() < 2 / len(uniform) ** 0.5
    assert torch.equal(noise[5:9, 3:4], logistic(7, larger[5:9], smaller[3:4], torch.float64))
    assert not torch.equal(noise, logistic(8, larger, smaller, torch.float64))


def test_pairs_beyond_this_host_and_several_labels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings.parse({}, ["model.name=vgcn", "relation.order=1"])
    monkeypatch.setattr("nfdist.model.build.host_bytes", lambda: 4 << 30)
    with pytest.raises(
        ConfigError, match=r"vgcn holds 32 bytes for every pair of 20,000 nodes, about 12 GiB, .* 11,585"
    ):
        build_model(config, FEATURES, OUTPUTS, num_nodes=20_000)
    with pytest.raises(ConfigError, match="vgcn answers for one label a node, and these are several: take one of node"):
        check_task("vgcn", "multi")
    check_task("vgcn", "single")
    with pytest.raises(ConfigError, match="the model is of 41 nodes, got node 41"):
        build()(
            torch.ones(1, FEATURES).double(),
            build_relations(
                Adjacency.from_edges(torch.zeros(0).long(), torch.zeros(0).long(), 1), 1, dtype=torch.float64
            ),
            Draw(0, 0, torch.tensor([41])),
        )
