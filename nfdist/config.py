"""The settings of nfdist: one frozen dataclass a section, refused at construction when a value cannot work."""

from dataclasses import dataclass, field
from typing import Any

from nfdist.errors import ConfigError


@dataclass(frozen=True)
class ModelConfig:
    """[model]: the stack. `channels` is the width of the hidden state and of each head."""

    name: str = "nodeformer"
    layers: int = 2
    channels: int = 32
    heads: int = 4
    random_features: int = 30
    dropout: float = 0.0
    residual: bool = True
    norm: str = "layer"
    activation: str = "none"
    jumping_knowledge: bool = False

    def __post_init__(self) -> None:
        _one_of("model.name", self.name, "nodeformer")
        for key in ("layers", "channels", "heads", "random_features"):
            _at_least(f"model.{key}", getattr(self, key), 1)
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"model.dropout must be at least 0 and below 1, got {self.dropout}")
        _one_of("model.norm", self.norm, "layer", "none")
        _one_of("model.activation", self.activation, "elu", "none")


@dataclass(frozen=True)
class AttentionConfig:
    """[attention]: which weights. `eval_temperature` 0 means the training temperature."""

    kind: str = "gumbel"
    temperature: float = 0.25
    eval_temperature: float = 0.0
    noise_draws: int = 10
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        _one_of("attention.kind", self.kind, "gumbel", "softmax")
        if not self.temperature > 0:
            raise ConfigError(f"attention.temperature must be positive, got {self.temperature}")
        if not self.eval_temperature >= 0:
            raise ConfigError(
                f"attention.eval_temperature must be positive, or 0 for the training one, got {self.eval_temperature}"
            )
        _at_least("attention.noise_draws", self.noise_draws, 1)
        if not self.epsilon >= 0:
            raise ConfigError(f"attention.epsilon must be zero or positive, got {self.epsilon}")


@dataclass(frozen=True)
class RelationConfig:
    """[relation]: the bias towards the input graph, over paths of up to `order` steps; order 0 ignores the graph."""

    order: int = 2
    gate: str = "sigmoid"
    normalize: bool = True

    def __post_init__(self) -> None:
        _at_least("relation.order", self.order, 0)
        _one_of("relation.gate", self.gate, "sigmoid", "identity")


@dataclass(frozen=True)
class Config:
    """All sections of a configuration file."""

    model: ModelConfig = field(default_factory=ModelConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    relation: RelationConfig = field(default_factory=RelationConfig)


def _one_of(name: str, value: Any, *choices: str) -> None:
    if value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"{name} must be at least {least}, got {value}")
