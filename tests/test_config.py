"""Settings that cannot work are refused where they are made, with the key and the value."""

from dataclasses import fields

import pytest

from nfdist.config import (
    AttentionConfig,
    Config,
    DropEdgeConfig,
    IdglConfig,
    ModelConfig,
    ObserveConfig,
    RelationConfig,
    RunConfig,
    TrainConfig,
)
from nfdist.errors import ConfigError


@pytest.mark.parametrize(
    ("section", "setting", "message"),
    [
        (ModelConfig, {"layers": 0}, "model.layers must be at least 1, got 0"),
        (ModelConfig, {"channels": -3}, "model.channels must be at least 1, got -3"),
        (ModelConfig, {"heads": 0}, "model.heads must be at least 1, got 0"),
        (ModelConfig, {"random_features": 0}, "model.random_features must be at least 1, got 0"),
        (ModelConfig, {"dropout": 1.0}, "model.dropout must be at least 0 and below 1, got 1.0"),
        (ModelConfig, {"dropout": 0.999995}, "model.dropout = 0.999995 drops everything: set it to at most 0.9999"),
        (ModelConfig, {"dropout": -0.1}, "model.dropout must be at least 0 and below 1, got -0.1"),
        (DropEdgeConfig, {"edge_dropout": 1.0}, "model.dropedge.edge_dropout must be at least 0 and below 1, got 1.0"),
        (IdglConfig, {"anchors": -1}, "model.idgl.anchors must be at least 0, got -1"),
        (IdglConfig, {"graph_share": 1.5}, "model.idgl.graph_share must be at most 1, got 1.5"),
        (ModelConfig, {"norm": "rows"}, "model.norm must be one of layer, batch, none, got 'rows'"),
        (ModelConfig, {"activation": "relu"}, "model.activation must be one of elu, none, got 'relu'"),
        (AttentionConfig, {"kind": "linear"}, "attention.kind must be one of gumbel, softmax, got 'linear'"),
        (AttentionConfig, {"temperature": 0.0}, "attention.temperature must be at least 0.0001, got 0.0"),
        (AttentionConfig, {"temperature": float("nan")}, "attention.temperature must be at least 0.0001, got nan"),
        (AttentionConfig, {"eval_temperature": -1.0}, "attention.eval_temperature must be at least 0.0001, got -1.0"),
        (AttentionConfig, {"eval_directions": "epoch"}, "attention.eval_directions must be one of seed, step"),
        (AttentionConfig, {"noise_draws": 0}, "attention.noise_draws must be at least 1, got 0"),
        (AttentionConfig, {"epsilon": -1e-6}, "attention.epsilon must be at least 0, got -1e-06"),
        (TrainConfig, {"sampling": "walk"}, "train.sampling must be one of uniform, local, walks, got 'walk'"),
        (TrainConfig, {"walk_length": 0}, "train.walk_length must be at least 1, got 0"),
        (TrainConfig, {"sampling": "walks"}, 'train.sampling = "walks" takes walks of 3 nodes: set train.batch_nodes'),
        (RelationConfig, {"order": -1}, "relation.order must be at least 0, got -1"),
        (RelationConfig, {"order": 1000}, "relation.order must be at most 20, got 1000"),
        (ModelConfig, {"layers": 10**20}, "model.layers must be at most 1000, got 1"),
        (AttentionConfig, {"temperature": float("inf")}, "attention.temperature must be at most 10000.0, got inf"),
        (RunConfig, {"timeout_seconds": 1e20}, "run.timeout_seconds must be at most 10000000.0, got 1e+20"),
        (TrainConfig, {"seeds": (2**63,)}, "train.seeds must be distinct numbers from 0 to 2^63 - 1"),
        (RelationConfig, {"gate": "tanh"}, "relation.gate must be one of sigmoid, identity, none, got 'tanh'"),
    ],
)
def test_values_that_cannot_work_are_named(section: type, setting: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        section(**setting)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(("name", "order", "edge_loss"), [("mlp", 0, 0.0), ("mlp", 1, 0.0), ("idgl", 1, 0.3)])
def test_a_baseline_takes_the_settings_it_needs(name: str, order: int, edge_loss: float) -> None:
    Config(model=ModelConfig(name=name), relation=RelationConfig(order=order), train=TrainConfig(edge_loss=edge_loss))


@pytest.mark.parametrize(
    "kind",
    [
        *(ModelConfig, DropEdgeConfig, IdglConfig, AttentionConfig),
        *(RelationConfig, TrainConfig, RunConfig, ObserveConfig),
    ],
)
@pytest.mark.parametrize("value", [10**20, -1, 1e300, float("inf"), float("nan")])
def test_no_number_is_taken_however_large_or_odd(kind: type, value: float) -> None:
    for setting in fields(kind):
        if setting.type in (int, float):
            with pytest.raises(ConfigError, match=rf"\.{setting.name} "):
                kind(**{setting.name: value})
