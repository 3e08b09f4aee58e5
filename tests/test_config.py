"""Settings that cannot work are refused where they are made, with the key and the value."""

import pytest

from nfdist.config import AttentionConfig, ModelConfig, RelationConfig
from nfdist.errors import ConfigError


@pytest.mark.parametrize(
    ("section", "setting", "message"),
    [
        (ModelConfig, {"name": "gcn"}, "model.name must be one of nodeformer, got 'gcn'"),
        (ModelConfig, {"layers": 0}, "model.layers must be at least 1, got 0"),
        (ModelConfig, {"channels": -3}, "model.channels must be at least 1, got -3"),
        (ModelConfig, {"heads": 0}, "model.heads must be at least 1, got 0"),
        (ModelConfig, {"random_features": 0}, "model.random_features must be at least 1, got 0"),
        (ModelConfig, {"dropout": 1.0}, "model.dropout must be at least 0 and below 1, got 1.0"),
        (ModelConfig, {"dropout": -0.1}, "model.dropout must be at least 0 and below 1, got -0.1"),
        (ModelConfig, {"norm": "batch"}, "model.norm must be one of layer, none, got 'batch'"),
        (ModelConfig, {"activation": "relu"}, "model.activation must be one of elu, none, got 'relu'"),
        (AttentionConfig, {"kind": "linear"}, "attention.kind must be one of gumbel, softmax, got 'linear'"),
        (AttentionConfig, {"temperature": 0.0}, "attention.temperature must be positive, got 0.0"),
        (AttentionConfig, {"temperature": float("nan")}, "attention.temperature must be positive, got nan"),
        (AttentionConfig, {"eval_temperature": -1.0}, "attention.eval_temperature must be positive"),
        (AttentionConfig, {"noise_draws": 0}, "attention.noise_draws must be at least 1, got 0"),
        (AttentionConfig, {"epsilon": -1e-6}, "attention.epsilon must be zero or positive, got -1e-06"),
        (RelationConfig, {"order": -1}, "relation.order must be at least 0, got -1"),
        (RelationConfig, {"gate": "tanh"}, "relation.gate must be one of sigmoid, identity, got 'tanh'"),
    ],
)
def test_values_that_cannot_work_are_named(section: type, setting: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        section(**setting)
    assert str(refused.value).startswith(message)
