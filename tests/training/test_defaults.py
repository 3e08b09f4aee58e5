"""A partition alone is enough to train on, with settings that suit its graph."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nfdist import settings
from nfdist.api import configure
from nfdist.cli.main import main
from nfdist.model.build import MODELS, check_settings
from nfdist.store.store import Store
from nfdist.training.defaults import BATCH_NODES, graph_settings
from tests.training.building import build_partition


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("defaults") / "graph", 1)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_can_be_trained_by_them(name: str, graph: Path) -> None:
    needed = ["model.dropedge.edge_dropout=0.1"] if name == "dropedge" else []
    check_settings(configure(graph, [f"model.name={name}", *needed]))


def test_what_is_given_wins_over_them_and_they_over_the_defaults(
    graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = configure(graph, ["model.channels=8"])
    assert (found.data.partition, found.model.channels, found.model.activation) == (str(graph), 8, "elu")
    assert "settings for this graph: all nodes in every step" in capsys.readouterr().err


@pytest.mark.parametrize(("nodes", "edges"), [(1000, 0), (1000, 10), (10**6, 10**7)])
def test_they_follow_from_the_size_of_the_graph(nodes: int, edges: int) -> None:
    graph: Any = SimpleNamespace(num_nodes=nodes, num_edges=edges)
    sections, said = graph_settings(graph)
    found = settings.parse(sections)
    assert found.train.batch_nodes == (BATCH_NODES if nodes == 10**6 else 0)
    assert (found.relation.order, found.model.graph_layers) == ((1, 2) if edges else (0, 0))
    assert f"{edges:,} edges" in said


def test_the_command_takes_a_partition(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"run.dir={tmp_path / 'run'}", "train.epochs=2", "observe.port=0", "run.device=cpu"]
    assert main(["train", str(graph), *words]) == 0
    assert "best accuracy" in capsys.readouterr().out
    assert Store.open(graph).num_nodes == 245


def test_help_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    said = capsys.readouterr().out
    assert "train.learning_rate=0.001" in said
    assert "model.graph_layers=0" in said
