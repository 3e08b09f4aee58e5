"""Every model has a search space in which any trial can be trained."""

import pytest

from nfdist.config import Config
from nfdist.model.build import MODELS, check_settings
from nfdist.tune.default_spaces import SPACES, default_space
from nfdist.tune.search_space import Choices, with_values
from nfdist.tune.usual import usual_config


@pytest.mark.parametrize("name", MODELS)
def test_the_ends_of_a_space_are_settings_that_the_model_takes(name: str) -> None:
    base = Config() if name == "nodeformer" else usual_config(Config(), name)
    space = default_space(base)
    assert {"train.learning_rate", "train.weight_decay"} <= set(space)
    for key, one in space.items():
        for value in one.values if isinstance(one, Choices) else (one.low, one.high):
            check_settings(with_values(base, {key: value}))


def test_what_is_fixed_or_needs_a_graph_is_left_out() -> None:
    base = with_values(Config(), {"relation.order": 0, "train.edge_loss": 0.0})
    space = default_space(base, ["model.layers"])
    assert set(SPACES["nodeformer"]) - set(space) == {
        *("model.layers", "model.graph_layers", "model.branch_share", "relation.gate", "train.edge_loss")
    }
