"""Layers are made again where a rank's share of a whole graph is large, whatever the memory of its host."""

import pytest

from nfdist.config import Config, ModelConfig, TrainConfig
from nfdist.errors import ConfigError
from nfdist.model.build import check_settings
from nfdist.training.recomputing import KEPT_NODES, recomputes


@pytest.mark.parametrize(
    ("config", "num_nodes", "ranks", "wanted"),
    [
        (TrainConfig(batch_nodes=0), KEPT_NODES, 1, False),
        (TrainConfig(batch_nodes=0), KEPT_NODES + 1, 1, True),
        (TrainConfig(batch_nodes=0), 2 * KEPT_NODES, 2, False),
        (TrainConfig(batch_nodes=100_000), 10 * KEPT_NODES, 1, False),
        (TrainConfig(batch_nodes=100_000, recompute="always"), 10, 1, True),
        (TrainConfig(batch_nodes=0, recompute="never"), 10 * KEPT_NODES, 1, False),
    ],
)
def test_auto_looks_at_the_share_of_a_rank(config: TrainConfig, num_nodes: int, ranks: int, wanted: bool) -> None:
    assert recomputes(config, num_nodes, ranks) == wanted


def test_a_model_that_cannot_is_not_told_to() -> None:
    config = Config(model=ModelConfig(name="mlp"), train=TrainConfig(edge_loss=0.0, recompute="always"))
    with pytest.raises(ConfigError, match=r"set .*train\.recompute=auto \(is always\)"):
        check_settings(config)
