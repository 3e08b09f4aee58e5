"""The published recipe computes NodeFormer's function: the same loss, gradients and logits from the same draws."""

import json
from pathlib import Path

import published
import pytest
import torch
from torch import Tensor
from transcription import FreshDraws, OwnDraws, Transcription

from nfdist import seeds
from nfdist.config import AttentionConfig, AttentionKind, ModelConfig, RelationConfig
from nfdist.errors import ConfigError
from nfdist.graph.relation import Relation, build_relations
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw
from nfdist.model.task import Task
from nfdist.sparse.adjacency import Adjacency
from tests.needs import needs_dgl
from tests.training.building import build_partition, config_of

pytestmark = needs_dgl  # whose sums the transcription uses

NODES, FEATURES, CLASSES, EDGE_LOSS = 40, 6, 3, 0.7
NODE_IDS = torch.arange(NODES) + 100
EPSILON = 1e-6
CASES = {
    "published": (ModelConfig(channels=8, heads=2, random_features=5), RelationConfig(order=2)),
    "no graph, dropout": (ModelConfig(channels=8, heads=3, dropout=0.5), RelationConfig(order=0)),
    "large graphs": (
        ModelConfig(layers=3, channels=8, heads=1, activation="elu", jumping_knowledge=True),
        RelationConfig(order=1, gate="identity"),
    ),
    "no bias": (ModelConfig(channels=8, heads=2, norm="none", residual=False), RelationConfig(order=1, gate="none")),
}


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made_model(case: str, kind: AttentionKind = "gumbel") -> tuple[NodeFormer, list[Relation]]:
    model, relation = CASES[case]
    attention = AttentionConfig(kind=kind, noise_draws=3, epsilon=EPSILON)
    ends = torch.randint(NODES, (2, 100), generator=torch.Generator().manual_seed(1))
    graph = Adjacency.from_edges(ends[0], ends[1], NODES)
    net = NodeFormer(FEATURES, CLASSES, model, attention, relation, seed=3).double()
    return net, build_relations(graph, relation.order, dtype=torch.float64)


def assert_close(ours: Tensor, theirs: Tensor) -> None:
    largest = max((float(entry.abs().max()) for entry in (theirs.detach(),) if entry.numel()), default=0.0)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10 * max(largest, 1e-3))


@pytest.mark.parametrize("kind", ["gumbel", "softmax"])
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_are_nodeformers(case: str, kind: AttentionKind) -> None:
    net, relations = made_model(case, kind)
    features, labels = drawn(NODES, FEATURES, seed=0), torch.arange(NODES) % (CLASSES + 1) - 1
    draw = Draw(5, 9, NODE_IDS)
    edge_loss = EDGE_LOSS if relations else 0.0
    scale = net.auxiliary_scale(edge_loss, relations[0].adjacency.num_edges) if relations else 0.0
    output = net(features, relations, draw, auxiliary_scale=scale)
    loss = Task("single", CLASSES).loss(output.logits, labels).mean
    if output.auxiliary_loss is not None:
        loss = loss + output.auxiliary_loss
    transcribed = Transcription(net, *relations).loss(features, labels, edge_loss, draw)
    assert_close(loss, transcribed)
    parameters = list(net.parameters())
    ours = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    theirs = torch.autograd.grad(transcribed, parameters, allow_unused=True, materialize_grads=True)
    for own, other in zip(ours, theirs, strict=True):
        assert_close(own, other)


@pytest.mark.parametrize("case", CASES)
def test_logits_of_an_evaluation_are_nodeformers(case: str) -> None:
    net, relations = made_model(case)
    features, draw = drawn(NODES, FEATURES, seed=0), Draw(5, 0, NODE_IDS)
    net.eval()
    logits, _ = Transcription(net, *relations).forward(features, OwnDraws(net, draw))
    assert_close(net(features, relations, draw).logits, logits)


def test_the_epsilon_is_added_before_the_factor_of_the_features() -> None:
    """(exp(w.x - |x|²/2 - shift) + 1e-6) / √m, as published, is what the recipe's own epsilon makes."""
    config = config_of(Path("nowhere"), Path("nowhere"), "model.random_features=9", "model.channels=4", "model.heads=1")
    graph = published.Graph(_Sizes(), Task("single", 2), torch.empty(0), torch.empty(0), [])  # type: ignore[arg-type]
    net = published.build_model(config, graph, seed=0).double()
    rows, directions = drawn(5, 1, 4, seed=2), drawn(9, 4, seed=3)
    features = Transcription(net)._features(rows, directions, dims=(2,))
    scaled = rows / (4**0.25 * config.attention.temperature**0.5)
    projected = scaled @ directions.t()
    shifted = projected - scaled.square().sum(2, keepdim=True) / 2 - projected.amax(2, keepdim=True)
    assert_close(features, (shifted.exp() + 1e-6) / 9**0.5)


class _Sizes:
    num_features = 3


def test_fresh_draws_are_noise_and_directions_anew_in_training_and_no_noise_in_evaluation() -> None:
    net, _ = made_model("published")
    hidden = drawn(NODES, 8, seed=4)
    draws = FreshDraws(net, seeds.generator(0))
    first, second = (draws.layer(1, hidden) for _ in range(2))
    assert not torch.equal(first[0], second[0])
    assert first[1] is not None
    assert first[1].shape == (NODES, 2, 3)
    net.eval()
    assert draws.layer(1, hidden)[1] is None


SMALL = (
    *("train.epochs=3", "train.batch_nodes=0", "train.seeds=[0, 1]", "data.split=random:0.5/0.25/0.25"),
    *("attention.scope=rank", "relation.scope=rank", "train.learning_rate=0.01"),
)


def test_the_recipe_is_repeatable_and_keeps_finished_seeds(tmp_path: Path) -> None:
    config = config_of(build_partition(tmp_path / "graph", 1), tmp_path / "run", *SMALL)
    first = published.run(config, resume=False)
    assert [seed["seed"] for seed in first["per_seed"]] == [0, 1]
    assert all(1 <= seed["best"]["epoch"] <= 3 for seed in first["per_seed"])
    again = published.run(config, resume=False)
    scores = [[seed[part] for seed in result["per_seed"] for part in ("best", "final")] for result in (first, again)]
    assert scores[0] == scores[1]
    kept = tmp_path / "run" / "seed-1.json"
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "best": {"epoch": 1, "valid": 1.0, "test": 0.125}}))
    assert published.run(config, resume=True)["per_seed"][1]["best"]["test"] == 0.125


def test_batches_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch_nodes=0"):
        published.run(config_of(tmp_path, tmp_path, "train.batch_nodes=5"), resume=False)
