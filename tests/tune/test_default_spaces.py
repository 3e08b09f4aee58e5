"""Every model has a search space in which any trial can be trained."""

import pytest

from nfdist.config import Config
from nfdist.model.build import MODELS, check_settings
from nfdist.tune.default_spaces import SPACES, default_space, starts
from nfdist.tune.search_space import Choices, own_values, with_values
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


@pytest.mark.parametrize("order", [0, 1])
def test_the_first_trials_can_be_trained_and_begin_with_the_own_values(order: int) -> None:
    base = with_values(Config(), {"relation.order": order, "train.edge_loss": 0.1 * order})
    space = default_space(base)
    own, *others = starts(base, space)
    assert own == own_values(base, space)
    assert [other["model.layers"] for other in others] == [1, 1, 1]
    assert [other["model.norm"] for other in others] == ["layer", "layer", "none"]
    assert all(other.get("relation.gate", "none") == "none" for other in others), "the graph is left to smoothing"
    for values in (own, *others):
        assert set(values) <= set(space)
        check_settings(with_values(base, values))


def test_no_two_of_the_first_trials_are_alike() -> None:
    base = with_values(Config(), {"model.dropout": 0.3, "model.input_dropout": 0.2})
    assert len(starts(base, default_space(base))) == len(starts(Config(), default_space(Config()))) - 1


def test_a_space_without_the_settings_of_a_start_begins_with_the_own_values_alone() -> None:
    space = default_space(Config(), ["model.jumping_knowledge"])
    assert starts(Config(), space) == [own_values(Config(), space)]
