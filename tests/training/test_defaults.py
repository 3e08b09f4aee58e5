"""A partition alone is enough to train on, with settings that suit its graph."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nfdist import settings
from nfdist.api import configure
from nfdist.cli.main import main
from nfdist.model.build import MODELS, check_settings
from nfdist.store.store import Store
from nfdist.training.defaults import BATCH_NODES, describe_choice, graph_settings, training_homophily
from tests.store.building import build_graph, write
from tests.training.building import build_partition


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("defaults") / "graph", 1)


def described(nodes: int, edges: int, features: int = 8, kind: str = "dense") -> Any:
    """What a partition says of itself, as far as settings follow from it."""
    manifest = SimpleNamespace(feature_kind=kind)
    return SimpleNamespace(num_nodes=nodes, num_edges=edges, num_features=features, manifest=manifest)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_can_be_trained_by_them(name: str, graph: Path) -> None:
    needed = ["model.dropedge.edge_dropout=0.1"] if name == "dropedge" else []
    check_settings(configure(graph, [f"model.name={name}", *needed]))


def test_what_is_given_wins_over_them_and_they_over_the_defaults(
    graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = configure(graph, ["model.channels=8", "train.epochs=7"])
    assert (found.data.partition, found.model.channels, found.model.activation) == (str(graph), 8, "elu")
    assert "settings for this graph: all nodes in every step, at most 7 epochs" in capsys.readouterr().err
    configure(graph, [], {})
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("nodes", "edges"), [(1000, 0), (1000, 10), (10**6, 10**7)])
def test_they_follow_from_the_size_of_the_graph(nodes: int, edges: int) -> None:
    found = settings.parse(graph_settings(described(nodes, edges)))
    assert found.train.batch_nodes == (BATCH_NODES if nodes == 10**6 else 0)
    assert (found.relation.order, found.model.graph_layers) == ((1, 2) if edges else (0, 0))
    assert f"{edges:,} edges" in describe_choice(described(nodes, edges), found, None)


@pytest.mark.parametrize(
    ("edges", "homophily", "residual"), [(10_000, 0.5, False), (9_999, 0.5, True), (10_000, 0.1, True), (0, None, True)]
)
def test_a_branch_among_many_alike_neighbors_is_a_gcn(edges: int, homophily: float | None, residual: bool) -> None:
    found = graph_settings(described(1000, edges), homophily=homophily)
    assert found["model"]["branch_residual"] is residual
    assert graph_settings(described(1000, edges), "gcn", homophily)["model"]["branch_residual"]


def test_larger_graphs_have_fewer_draws_of_noise() -> None:
    small, large = (graph_settings(described(nodes, 10))["attention"]["noise_draws"] for nodes in (5000, 5001))
    assert (small, large) == (10, 2)


@pytest.mark.parametrize(
    ("nodes", "features", "kind", "homophily", "dropouts"),
    [
        (1000, 50, "dense", 1.0, (0.5, 0.0)),  # a table of a few columns
        (1000, 101, "sparse", 1.0, (0.5, 0.5)),  # learned by heart
        (1000, 101, "sparse", 0.0, (0.7, 0.5)),
        (1000, 101, "dense", 0.0, (0.5, 0.0)),
        (1000, 100, "sparse", 0.0, (0.3, 0.2)),  # plenty of nodes
        (1000, 100, "dense", 1.0, (0.3, 0.2)),
        (10**6, 100, "sparse", 0.0, (0.5, 0.0)),  # in batches
    ],
)
def test_what_is_dropped_follows_from_how_much_there_is_to_learn_from(
    nodes: int, features: int, kind: str, homophily: float, dropouts: tuple[float, float]
) -> None:
    graph = described(nodes, 10 * nodes, features, kind)
    found = settings.parse(graph_settings(graph, homophily=homophily))
    assert (found.model.dropout, found.model.input_dropout) == dropouts
    assert ("left out of each step" in describe_choice(graph, found, homophily)) == (dropouts[1] > 0)


def test_a_branch_has_most_of_the_say_where_neighbors_are_alike(tmp_path: Path) -> None:
    graph = build_graph(num_nodes=200, num_edges=20_000)
    found = {}
    for kind in ("alike", "by chance"):
        labels = graph.labels.copy()
        labels[:] = np.arange(len(labels)) % 4
        sources, targets = graph.sources, graph.targets
        same = labels[sources] == labels[targets]
        kept = same if kind == "alike" else np.ones_like(same)
        write(tmp_path / kind, replace(graph, labels=labels, sources=sources[kept], targets=targets[kept]))
        store = Store.open(tmp_path / kind)
        found[kind] = training_homophily(store)
        assert training_homophily(store, sampled_nodes=2) is None
    assert found["alike"] == pytest.approx(1)
    assert found["by chance"] == pytest.approx(0, abs=0.15)
    shares = [graph_settings(store, homophily=one)["model"]["branch_share"] for one in found.values()]
    assert shares == [0.8, 0.2]


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
