"""A run is read with the values it was written with, whatever its settings are called now and default to."""

import json
import re
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch

from nfdist import config as sections
from nfdist import settings
from nfdist.cli.main import main
from nfdist.config import Config, DropEdgeConfig, IdglConfig, ModelConfig, RelationConfig, TrainConfig
from nfdist.errors import CheckpointError
from nfdist.fields import each_setting
from nfdist.runs.records import read_config, sealed
from nfdist.runs.run import Run
from nfdist.world import World
from tests.cli.runs import outcome
from tests.runs.building import make_format_2
from tests.training.building import build_partition, build_two_classes, config_of, last_weights, run_training

# What version 0.1.0 wrote into every run of format version 2.
STORED = (Path(__file__).parent / "stored" / "config_format_2.toml").read_text()
YOUNGER_THAN_FORMAT_1 = (
    "edge_dropout",
    "anchors",
    "refinements",
    "graph_share",
    "similarity_threshold",
    "eval_directions",
    "walk_length",
)


def stored_values() -> dict[str, Any]:
    """The values of STORED by the names that they had."""
    tables = settings.parse_toml(STORED, "stored")
    return {f"{section}.{key}": value for section, table in tables.items() for key, value in table.items()}


def read_stored(text: str, folder: Path, run_id: str = "abc") -> Config:
    path = folder / "config.toml"
    path.write_text(sealed(text, run_id))
    return read_config(path, run_id)


@pytest.fixture
def other_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """No default is usable."""
    for kind in vars(sections).values():
        if isinstance(kind, type) and kind.__name__.endswith("Config") and kind is not Config:
            count = len(kind.__init__.__defaults__)  # type: ignore[misc]
            monkeypatch.setattr(kind.__init__, "__defaults__", (object(),) * count)  # type: ignore[misc]


def as_toml(values: dict[str, Any]) -> dict[str, Any]:
    """TOML has lists, and no tuples."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


@pytest.mark.usefixtures("other_defaults")
def test_no_default_comes_into_a_run_of_format_2(tmp_path: Path) -> None:
    config, stored = read_stored(STORED, tmp_path), stored_values()
    found = {field.metadata["was"] or name: attrgetter(name)(config) for name, field in each_setting(Config)}
    younger = {name: field.metadata["before"] for name, field in each_setting(Config) if name in found.keys() - stored}
    wanted = {**stored, **younger}
    assert as_toml(found) == as_toml(wanted)


@pytest.mark.usefixtures("other_defaults")
def test_nor_into_one_of_format_1_that_lacks_the_younger_keys(tmp_path: Path) -> None:
    young = re.compile(rf"^({'|'.join(YOUNGER_THAN_FORMAT_1)}) = .*\n", re.MULTILINE)
    text, count = young.subn("", STORED)
    assert count == len(YOUNGER_THAN_FORMAT_1)
    assert read_stored(text, tmp_path) == read_stored(STORED, tmp_path)


def test_a_setting_that_is_new_says_what_runs_before_it_did() -> None:
    """Give `before` to a setting that you add, and `was` to one that you move; STORED stays as it is."""
    stored = stored_values()
    for name, field in each_setting(Config):
        known = name in stored or field.metadata["was"] in stored
        assert known or field.metadata["before"] is not None, name


@pytest.mark.parametrize(
    ("line", "other", "message"),
    [
        ("epochs = 100\n", "", "train.epochs is missing, which every run has: restore the file"),
        ("[observe]\n", "[odd]\n", "unknown section odd"),
        ("heads = 4\n", "haeds = 4\n", "unknown setting model.haeds"),
        ("anchors = 0\n", "anchors = -3\n", "model.idgl.anchors must be at least 0, got -3"),
        ("anchors = 0\n", "anchors = 0\nidgl = 7\n", "model.anchors is now model.idgl.anchors: give it once"),
        ("anchors = 0\n", "anchors = 0\nidgl = {anchors = 7}\n", "model.anchors is now model.idgl.anchors"),
    ],
)
def test_what_no_version_wrote_is_refused(tmp_path: Path, line: str, other: str, message: str) -> None:
    assert line in STORED
    with pytest.raises(CheckpointError, match=message) as caught:
        read_stored(STORED.replace(line, other), tmp_path)
    assert "config.toml cannot be used" in str(caught.value)


@pytest.mark.parametrize(
    "model",
    [
        ModelConfig(name="dropedge", dropedge=DropEdgeConfig(0.25)),
        ModelConfig(name="idgl", idgl=IdglConfig(anchors=50, refinements=3, graph_share=0.5, similarity_threshold=0.1)),
    ],
)
def test_keys_of_one_model_are_found_where_they_were(tmp_path: Path, model: ModelConfig) -> None:
    config = Config(model=model, relation=RelationConfig(order=1), train=TrainConfig(edge_loss=0.0))
    path = Run.create(tmp_path / "run", config, "launch").path
    Run.open(path).write_result({"metric": "accuracy"})
    make_format_2(path)
    assert "[model.idgl]" not in (path / "config.toml").read_text()
    run = Run.open(path)
    assert (run.config, run.result()) == (config, {"metric": "accuracy"})
    run.reconfigured(replace(config, train=replace(config.train, epochs=7)))
    assert "[model.idgl]" in (path / "config.toml").read_text()
    assert Run.open(path).config.train.epochs == 7
    assert json.loads((Run.create(tmp_path / "new", config, "").path / "run.json").read_bytes())["format_version"] == 3


def test_a_run_of_format_2_resumes_and_evaluates_to_what_it_did(tmp_path: Path) -> None:
    graph = build_partition(tmp_path / "graph", 1)
    own = ("model.name=dropedge", "model.dropedge.edge_dropout=0.4", "train.edge_loss=0", "train.evaluate_every=1")
    words = (*own, "relation.order=1", "relation.scope=rank", "attention.scope=rank")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run_training(World(), settings.dump(config_of(graph, whole, *words)))
    run_training(World(), settings.dump(config_of(graph, cut, *words, "train.epochs=1")))
    make_format_2(cut)
    result = run_training(World(), settings.dump(config_of(graph, cut, *words)), resume=True)
    assert result is not None
    assert result["best"] == (Run.open(whole).result() or {})["best"]
    for name, tensor in last_weights(whole).items():
        assert torch.equal(last_weights(cut)[name], tensor)
    make_format_2(cut)
    for run in (whole, cut):
        assert main(["evaluate", str(run), "--no-states"]) == 0
    predictions = [(run / "predictions.parquet").read_bytes() for run in (whole, cut)]
    assert predictions[0] == predictions[1]


def test_auto_stays_what_it_was_for_a_run_of_two_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph, words = build_two_classes(tmp_path), ("train.evaluate_every=1", "train.precision=float32")
    for name, metric in (("older", "accuracy"), ("new", "roc_auc")):
        path, file = tmp_path / name, tmp_path / f"{name}.toml"
        run_training(World(), settings.dump(config_of(graph, path, *words, f"evaluate.two_classes={metric}")))
        run, unsaid = Run.open(path), f'two_classes = "{metric}"\n'
        assert run.config.evaluate.metric == "auto"
        file.write_text(settings.dump(run.config).replace(unsaid, ""))
        if name == "older":  # as a version wrote it that did not know the key
            (path / "config.toml").write_text(sealed(file.read_text(), run.id))
        assert outcome(capsys, "evaluate", path, "--no-outputs")["metric"] == metric
        for epochs, given in ((3, file), (4, path / "config.toml")):
            resumed = outcome(capsys, "train", given, "evaluate.metric=auto", f"train.epochs={epochs}", "--resume")
            assert resumed["metric"] == metric
        evaluations = [line["metric"] for line in Run.open(path).metrics() if line["kind"] == "evaluation"]
        assert evaluations == [metric] * 4
