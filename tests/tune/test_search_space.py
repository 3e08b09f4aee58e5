"""Search spaces are read and checked like settings."""

from typing import Any

import pytest

from nfdist.config import Config
from nfdist.errors import ConfigError
from nfdist.tune.search_space import Choices, Interval, own_values, parse_space, with_values


def test_quoted_and_dotted_names_are_alike() -> None:
    quoted = {"train.learning_rate": {"low": 1e-3, "high": 1, "log": True}, "model.idgl.anchors": [0, 10]}
    dotted = {
        "train": {"learning_rate": {"low": 1e-3, "high": 1, "log": True}},
        "model": {"idgl": {"anchors": [0, 10]}},
    }
    space = parse_space(quoted)
    assert space == parse_space(dotted)
    assert space == {"train.learning_rate": Interval(1e-3, 1.0, True), "model.idgl.anchors": Choices((0, 10))}
    assert parse_space({name: values.as_toml() for name, values in space.items()}) == space


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"train.learning_rat": [0.1]}, r"unknown setting train\.learning_rat: did you mean train\.learning_rate\?"),
        ({"trian": {"learning_rate": [0.1]}}, r"unknown section trian: did you mean train\?"),
        ({"train.learning_rate": {"low": 0.1, "hgih": 1}}, "unknown key hgih: did you mean high"),
        ({"train.learning_rate": {"low": 0.1}}, "needs both low and high, got low"),
        ({"train.learning_rate": {"low": 0.1, "high": 0.1}}, "low below high"),
        ({"train.weight_decay": {"low": 0.0, "high": 0.1, "log": True}}, "needs a low above 0"),
        ({"train.learning_rate": {"low": 0.1, "high": 1.0, "log": True, "step": 0.1}}, "both log and step"),
        ({"model.dropout": {"low": 0.0, "high": 0.5, "step": 0.6}}, "step above 0 and at most"),
        ({"model.dropout": {"low": 0.0, "high": 1.0}}, r"dropout\.high must be at least 0 and below 1"),
        ({"model.dropout": [0.0, 1.5]}, r"dropout\[1\] must be at least 0 and below 1"),
        ({"model.layers": {"low": 1.5, "high": 3}}, "must be an integer"),
        ({"model.norm": ["layer", "rows"]}, "must be one of layer, batch, none"),
        ({"model.norm": {"low": 1, "high": 2}}, "is no number: give a list"),
        ({"model.layers": []}, "empty list"),
        ({"model.layers": [2, 2]}, "names a value twice"),
        ({"model.layers": 2}, "must be a list of values, or"),
        ({"model": [1]}, "model must be a section"),
        ({"train.seeds": [[0]]}, "the same for all trials"),
        ({"data.split": ["stored"]}, "the same for all trials"),
        ({"train.milestones": [[1]]}, "only single values"),
        ([1], "search must be a section"),
    ],
)
def test_what_cannot_be_searched_is_refused(tables: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_space(tables)


def test_values_are_put_into_a_configuration_and_checked() -> None:
    found = with_values(Config(), {"train.learning_rate": 0.5, "model.idgl.anchors": 7})
    assert (found.train.learning_rate, found.model.idgl.anchors) == (0.5, 7)
    assert with_values(found, {"train.learning_rate": 1e-3, "model.idgl.anchors": 0}) == Config()
    with pytest.raises(ConfigError, match="needs a graph"):
        with_values(Config(), {"relation.order": 0})


def test_own_values_are_the_nearest_inside_the_space() -> None:
    tables = {
        "model.dropout": {"low": 0.0, "high": 0.8, "step": 0.1},
        "model.layers": [1, 3],
        "train.learning_rate": {"low": 1e-3, "high": 1e-2},
        "train.edge_loss": {"low": 0.0, "high": 0.9, "step": 0.25},
        "train.weight_decay": {"low": 1e-6, "high": 1e-2, "log": True},
        "model.heads": {"low": 1, "high": 3},
    }
    config = with_values(Config(), {"model.dropout": 0.3, "train.edge_loss": 5.0})
    assert own_values(config, parse_space(tables)) == pytest.approx(
        {
            "model.dropout": 0.3,
            "train.learning_rate": 1e-3,
            "train.edge_loss": 0.75,
            "train.weight_decay": 1e-6,
            "model.heads": 3,
        }
    )
