"""Points of time and memory: measured for every method, and ended where a limit would be passed."""

import argparse
from pathlib import Path
from typing import Any

import pytest
import scaling
from scaling import EPOCHS, OVERRIDES, Point, configured, excess, foretold, measure

from nfdist.errors import ConfigError
from nfdist.model.baselines.idgl import IDGL
from nfdist.model.build import build_model
from nfdist.model.nodeformer import NodeFormer
from tests.training.building import build_partition

GIB = 2**30
OPTIONS = argparse.Namespace(memory="4GiB", seconds=60.0)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("scaling") / "graph", 1)


@pytest.mark.parametrize("method", OVERRIDES)
def test_every_method_is_measured(method: str, graph: Path) -> None:
    point = measure(method, configured(method, str(graph)), 60, 1, 60.0)
    assert (point.method, point.nodes) == (method, 60)
    assert point.seconds > 0
    assert point.peak_bytes >= 0


def test_the_data_of_fewer_nodes_is_part_of_that_of_more(graph: Path) -> None:
    config = configured("NodeFormer", str(graph))
    few, many = scaling.Data.load(config, 40), scaling.Data.load(config, 90)
    assert set(few.node_ids.tolist()) < set(many.node_ids.tolist())
    assert few.graph.num_nodes == len(few.features) == len(few.labels) == len(few.split) == 40


def test_the_methods_are_what_they_are_called(graph: Path) -> None:
    trained = OVERRIDES.keys() - EPOCHS
    built = {name: build_model(configured(name, str(graph)), 10, 3) for name in trained}
    models = {name: model.model for name, model in built.items() if isinstance(model, NodeFormer | IDGL)}
    assert {name: model.name for name, model in models.items()} == {
        "NodeFormer": "nodeformer",
        "IDGL": "idgl",
        "IDGL-Anch": "idgl",
    }
    assert (models["IDGL"].idgl.anchors, models["IDGL-Anch"].idgl.anchors) == (0, 500)


def test_points_are_foretold_by_the_square_of_the_nodes() -> None:
    assert foretold(Point("LDS", 1000, 2.0, 100), 3000) == Point("LDS", 3000, 18.0, 900)
    assert excess(Point("LDS", 1, 59.0, 3 * GIB), 4 * GIB, 60.0) is None
    assert excess(Point("LDS", 1, 61.0, 3 * GIB), 4 * GIB, 60.0) == "61 s an epoch"
    assert excess(Point("LDS", 1, 1.0, 5 * GIB), 4 * GIB, 60.0) == "5.0 GiB"


def test_sizes_double_up_to_all_nodes() -> None:
    assert scaling.doubling(9607) == [1000, 2000, 4000, 8000, 9607]
    assert scaling.doubling(2000) == [1000, 2000]
    assert scaling.doubling(60) == [60]


def test_a_method_ends_where_it_would_pass_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def quadratic(method: str, nodes: int, options: argparse.Namespace) -> Point:
        assert nodes <= 2000, "this must not be tried"
        return Point(method, nodes, 1.0, nodes**2 * GIB // 1000**2)

    monkeypatch.setattr(scaling, "measure_apart", quadratic)
    points, why = scaling.follow("LDS", [1000, 2000, 3000, 4000], OPTIONS)
    assert [point.nodes for point in points] == [1000, 2000]
    assert why == "would need 9.0 GiB for 3,000 nodes"


def test_a_method_ends_where_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(method: str, nodes: int, options: argparse.Namespace) -> Point:
        if nodes > 1000:
            raise ConfigError("too many pairs")
        return Point(method, nodes, 1.0, 1000)

    monkeypatch.setattr(scaling, "measure_apart", refused)
    points, why = scaling.follow("IDGL", [1000, 2000, 3000], OPTIONS)
    assert [point.nodes for point in points] == [1000]
    assert why == "too many pairs"


def test_points_of_other_methods_stay() -> None:
    def found(seconds: float, *methods: str) -> dict[str, Any]:
        points = [{"method": method, "nodes": 1000, "seconds": seconds} for method in methods]
        return {"points": points, "ended": {methods[0]: f"ended at {seconds}"}, "threads": seconds}

    both = scaling.joined(found(2.0, "GLCN", "VGCN"), found(1.0, "LDS", "GLCN", "IDGL"))
    assert [(point["method"], point["seconds"]) for point in both["points"]] == [
        ("LDS", 1.0),
        ("IDGL", 1.0),
        ("GLCN", 2.0),
        ("VGCN", 2.0),
    ]
    assert both["ended"] == {"LDS": "ended at 1.0", "GLCN": "ended at 2.0"}
    assert both["threads"] == 2.0
