"""Usual settings of every model, for comparisons on one graph, and where they come from.

Two layers of 64 channels, dropout 0.5, Adam at 0.01 with an L2 penalty of 5e-4 and early stopping are what GCN (Kipf
and Welling 2017) and most papers after it start from. A model differs where its own paper does.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from nfdist import settings
from nfdist.config import Config
from nfdist.model.build import MODELS
from nfdist.store.manifest import Manifest
from nfdist.tune.search_space import nested

COMMON: Mapping[str, Any] = {
    "model.layers": 2,
    "model.channels": 64,
    "model.dropout": 0.5,
    "model.norm": "none",
    "relation.order": 1,
    "train.learning_rate": 0.01,
    "train.weight_decay": 5e-4,
    "train.edge_loss": 0.0,
    "train.epochs": 500,
    "train.early_stop": 100,
}
OWN: Mapping[str, Mapping[str, Any]] = {
    "nodeformer": {},
    "mlp": {"relation.order": 0, "relation.weights": False},
    "gcn": {},
    # Wu et al. 2019: one linear map takes large steps and little decay.
    "sgc": {"train.learning_rate": 0.2, "train.weight_decay": 5e-5, "model.dropout": 0.0},
    # Veličković et al. 2018: 8 heads of 8 channels; dropout 0.6 there, also of attention weights, which is not here.
    "gat": {"model.heads": 8, "model.channels": 8, "train.learning_rate": 5e-3, "relation.weights": False},
    # Abu-El-Haija et al. 2019: the powers 0, 1 and 2 share the width.
    "mixhop": {},
    "jknet": {},
    # Rong et al. 2020 drop most of Cora's edges; half of them is the middle of their range.
    "dropedge": {"model.dropedge.edge_dropout": 0.5},
    # Chen et al. 2020; a step costs all pairs of nodes, so that it makes fewer and larger ones.
    "idgl": {
        "model.heads": 2,
        "model.idgl.refinements": 3,
        "train.edge_loss": 0.1,
        "train.learning_rate": 0.03,
        "train.epochs": 100,
        "train.early_stop": 20,
    },
    # Jiang et al. 2019, as their code has it: 30 channels, dropout 0.6, also of features.
    "glcn": {
        "model.channels": 30,
        "model.dropout": 0.6,
        "model.input_dropout": 0.6,
        "train.learning_rate": 5e-3,
        "train.weight_decay": 1e-4,
        "train.edge_loss": 0.01,
        "relation.weights": False,
    },
    # Elinas et al. 2020; a step costs all pairs of nodes, so that it makes fewer and larger ones.
    "vgcn": {"train.edge_loss": 1.0, "train.epochs": 200, "train.early_stop": 50, "relation.weights": False},
}
BASELINES = tuple(name for name in MODELS if name != "nodeformer")
# What a comparison takes from its configuration for all models: the graph, with its weights for those that heed them,
# the split, the seeds, the batches.
SHARED_SECTIONS = ("data", "evaluate", "run", "observe")
SHARED = (
    "relation.weights",
    *(
        "train.seeds",
        "train.batch_nodes",
        "train.accumulate",
        "train.batch_from",
        "train.sampling",
        "train.walk_length",
    ),
    *("train.evaluate_every", "train.checkpoint_every", "train.keep", "train.precision"),
)


def needs_scaling(manifest: Manifest) -> bool:
    """Whether features may be of any scale, as columns of a table and dense matrices are, unlike words of a text."""
    schema = manifest.schema
    return schema.normalize != "row" and (schema.is_named or manifest.feature_kind == "dense")


def usual_config(base: Config, name: str, overrides: Sequence[str] = (), *, standardize: bool = False) -> Config:
    """A model's usual settings on the graph, split, seeds and batches of a configuration, with overrides on top.

    NodeFormer's are the defaults. Baselines take features as they are, or standardized ones.
    """
    tables = settings.parse_toml(settings.dump(base), "configuration")
    shared: dict[str, Any] = {section: tables[section] for section in SHARED_SECTIONS}
    usual = OWN[name] if name == "nodeformer" else {**COMMON, **OWN[name], "model.standardize": standardize}
    values = {"model.name": name, **{key: attrgetter(key)(base) for key in SHARED}, **usual}
    for key, value in values.items():
        shared = settings.merged(shared, nested(key, value))
    return settings.parse(shared, overrides)
