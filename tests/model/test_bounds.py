"""What no pass may do: hold a tensor over nodes x draws x features or edges x features, or differ between two runs."""

import threading

import pytest
import torch

from nfdist import seeds
from nfdist.config import AttentionConfig, ModelConfig, RelationConfig
from nfdist.graph.relation import build_relations
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw
from nfdist.sparse.adjacency import Adjacency
from tests.model.largest_tensor import LargestTensor

NODES, EDGES, DRAWS, RANDOM_FEATURES, CHANNELS = 4000, 40_000, 8, 16, 16


def step(temperature: float) -> list[torch.Tensor]:
    generator = seeds.generator(0, "bounds")
    ends = torch.randint(NODES, (2, EDGES), generator=generator)
    relations = build_relations(Adjacency.from_edges(ends[0], ends[1], NODES), 1)
    model = NodeFormer(
        10,
        4,
        ModelConfig(layers=2, channels=CHANNELS, heads=1, random_features=RANDOM_FEATURES, dropout=0.5),
        AttentionConfig(noise_draws=DRAWS, temperature=temperature),
        RelationConfig(order=1),
    )
    features = torch.randn(NODES, 10, generator=generator)
    output = model(features, relations, Draw(1, 2, torch.arange(NODES)), auxiliary_scale=-1e-4)
    (output.logits.square().mean() + output.auxiliary_loss).backward()
    return [output.logits, *(parameter.grad for parameter in model.parameters())]


@pytest.mark.parametrize("temperature", [0.1, 0.25])  # few keys stand out, and all are summed up
def test_neither_pass_holds_nodes_by_draws_by_features_or_edges_by_features(
    temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nfdist.attention.ops.chunks._CHUNK_ELEMENTS", {"cpu": 20_000})
    monkeypatch.setattr("nfdist.attention.ops.chunks.Scratch._of_thread", threading.local())  # none of others
    with LargestTensor() as largest:
        step(temperature)
    assert largest.elements >= NODES * RANDOM_FEATURES  # the watch works: features of all nodes are allowed
    assert largest.elements < NODES * DRAWS * RANDOM_FEATURES / 2
    assert largest.elements < EDGES * RANDOM_FEATURES / 2


@pytest.mark.parametrize("temperature", [0.1, 0.25])
def test_two_runs_are_equal_to_the_bit(temperature: float) -> None:
    for one, again in zip(step(temperature), step(temperature), strict=True):
        assert torch.equal(one, again)
