"""Usual settings of every baseline are settings that it takes, on the graph, split and seeds that are given."""

from dataclasses import replace
from pathlib import Path

import pytest

from nfdist import settings
from nfdist.config import Config
from nfdist.errors import ConfigError
from nfdist.model.build import MODELS, check_settings
from nfdist.tune.usual import BASELINES, OWN, needs_scaling, usual_config
from tests.store import building

BASE = settings.parse(
    {
        "data": {"partition": "somewhere", "split": "random:0.5/0.25/0.25"},
        "model": {"heads": 3, "activation": "elu"},
        "train": {"seeds": [4, 5], "batch_nodes": 100, "epochs": 7},
    }
)


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_has_its_usual_settings_on_the_given_graph(name: str) -> None:
    config = usual_config(BASE, name)
    check_settings(config)
    assert config.data == BASE.data
    assert (config.train.seeds, config.train.batch_nodes) == ((4, 5), 100)
    assert config.train.early_stop > 0
    assert config.model.activation == Config().model.activation, "another model's settings are not taken over"


def test_overrides_win() -> None:
    assert usual_config(BASE, "gcn", ["train.epochs=3"]).train.epochs == 3
    with pytest.raises(ConfigError, match="did you mean"):
        usual_config(BASE, "gcn", ["train.epoch=3"])


def test_baselines_scale_what_may_be_of_any_scale(tmp_path: Path) -> None:
    """Columns of a table and dense matrices; not words, nor rows that sum to 1."""
    graphs = {"dense": ("dense", True), "sparse": ("sparse", False)}
    for name, (kind, scaled) in graphs.items():
        manifest = building.write(tmp_path / name, building.build_graph(features=kind))
        assert needs_scaling(manifest) == scaled
        rows_of_one = replace(manifest.schema, normalize="row")
        assert not needs_scaling(replace(manifest, schema=rows_of_one))
    assert usual_config(BASE, "gcn", standardize=True).model.standardize
    assert not usual_config(BASE, "gcn").model.standardize
    assert not usual_config(BASE, "gcn", ["model.standardize=false"], standardize=True).model.standardize


def test_every_model_has_usual_settings_and_those_of_nodeformer_are_the_defaults() -> None:
    assert {*BASELINES, "nodeformer"} == set(MODELS) == set(OWN)
    found = usual_config(usual_config(BASE, "gcn"), "nodeformer")
    assert (found.model, found.attention, found.relation) == (Config().model, Config().attention, Config().relation)
    assert found.data == BASE.data
