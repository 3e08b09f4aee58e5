"""Figures are drawn from what there is, and what is missing is said."""

import json
import sys
from pathlib import Path

import figures
import numpy as np
import pandas as pd
import pytest
from pictures import EvaluatedRun, strongest_links, weights_among
from table import FIGURES

from tests.paper.building import made_result


def run_main(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--work", str(folder / "work"), "--results", str(folder / "results"), "--out", str(folder / "figures")]
    monkeypatch.setattr(sys, "argv", ["figures.py", *words])
    assert figures.main() == 0


def test_every_figure_without_its_inputs_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_main(tmp_path, monkeypatch)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == len(FIGURES)
    assert all("left out, it needs" in line for line in told)
    assert not list((tmp_path / "figures").iterdir())


def test_what_has_inputs_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "results"
    for row_id in ("cora", "cora-gcn", "actor-gcn", "grid-tau0.25-m30", "grid-tau0.25-m50"):
        made_result(row_id, [0.5, 0.6]).write(results)
    points = [{"method": "NodeFormer", "nodes": nodes, "seconds": 0.1, "peak_bytes": 1 << 20} for nodes in (2000, 1000)]
    (results / "scaling.json").write_text(json.dumps({"points": points}))
    run_main(tmp_path, monkeypatch)
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert drawn == {"transductive.svg", "grid.svg", "scaling.svg"}
    assert [point["nodes"] for point in figures.scaling_curves({"points": points})["NodeFormer"]] == [1000, 2000]


def made_run() -> EvaluatedRun:
    neighbors = pd.DataFrame(
        {
            "id": [7, 5, 7, 5],
            "layer": [1, 1, 2, 2],
            "neighbors": [[7, 5, 9], [9, 7, 5], [5, 7, 9], [7, 9, 5]],
            "weights": [[0.5, 0.3, 0.2], [0.6, 0.3, 0.1], [0.7, 0.2, 0.1], [0.8, 0.1, 0.1]],
        }
    )
    return EvaluatedRun(None, np.array([5, 7]), np.array([0, 1]), np.zeros((2, 3), np.float32), neighbors)  # type: ignore[arg-type]


def test_weights_among_chosen_nodes_have_a_row_for_the_listener() -> None:
    assert weights_among(made_run(), 1).tolist() == [[0.1, 0.3], [0.3, 0.5]]


def test_the_strongest_links_are_the_last_layers_between_two_chosen_nodes() -> None:
    assert strongest_links(made_run(), 5) == [(1, 0), (0, 1)]  # 7 is heard by 5 with 0.8, then 5 by 7 with 0.7
    assert strongest_links(made_run(), 1) == [(1, 0)]
