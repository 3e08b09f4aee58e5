"""Models are compared on the same terms, taken from runs that are there, and ranked by validation scores."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

from nfdist.config import Config
from nfdist.errors import CheckpointError, ConfigError
from nfdist.runs.run import Run
from nfdist.training.job import train
from nfdist.tune import comparison as module
from nfdist.tune.comparison import Row, check_models, check_runs, compare, configurations, write_comparison
from tests.tune.building import build_graph, config_of

OVERRIDES = ["train.epochs=2", "train.early_stop=0", "model.channels=4"]


def compared(configs: dict[str, Config]) -> list[Row]:
    told: list[Row] = []
    rows, stopped = compare(configs, torch.device("cpu"), told.append)
    assert stopped is None
    assert {row.model for row in told} == {row.model for row in rows}
    return rows


def test_a_comparison_has_the_results_of_its_runs(graph: Path, tmp_path: Path) -> None:
    base, names = config_of(graph, *OVERRIDES), ["nodeformer", "mlp", "gcn"]
    configs = configurations(base, names, OVERRIDES, tmp_path)
    assert configs["nodeformer"].model == base.model
    rows = compared(configs)
    for row in rows:
        result = Run.open(tmp_path / row.model).result()
        assert result is not None
        assert (row.metric, row.test, row.test_std) == ("accuracy", result["test_mean"], result["test_std"])
        bests = [seed["best"]["valid"] for seed in result["per_seed"]]
        assert row.valid == pytest.approx(sum(bests) / len(bests))
        assert len(bests) == 2
        smoothed = [seed["smoothed"]["valid"] for seed in result["per_seed"]]
        assert row.smoothed_valid == row.answer["valid"] == pytest.approx(sum(smoothed) / len(smoothed))
        assert row.smoothed_test == result["smoothed_test_mean"]
    answers = [row.answer["valid"] for row in rows]
    assert answers == sorted(answers, reverse=True)
    mlp = next(row for row in rows if row.model == "mlp")
    assert mlp.parameters == 3 * 4 + 4 + 4 * 3 + 3
    write_comparison(rows, tmp_path)
    with (tmp_path / "compare.csv").open(newline="") as file:
        assert [row["model"] for row in csv.DictReader(file)] == [row.model for row in rows]


def test_runs_that_are_there_are_not_trained_again(graph: Path, tmp_path: Path) -> None:
    configs = configurations(config_of(graph, *OVERRIDES), ["mlp", "gcn"], OVERRIDES, tmp_path)
    rows = compared(configs)
    lines = (tmp_path / "gcn" / "metrics.jsonl").read_bytes()
    check_runs(configs)
    assert compared(configs) == rows
    assert (tmp_path / "gcn" / "metrics.jsonl").read_bytes() == lines
    other = configurations(
        config_of(build_graph(tmp_path / "other", poisoned=True), *OVERRIDES), ["gcn"], OVERRIDES, tmp_path
    )
    with pytest.raises(CheckpointError, match="was trained on another partition"):
        compared(other)
    others = configurations(config_of(graph, *OVERRIDES), ["gcn"], [*OVERRIDES, "train.epochs=3"], tmp_path)
    with pytest.raises(CheckpointError, match=r"gcn holds a run with train\.epochs = 2, not 3: choose another --out"):
        check_runs(others)


def test_a_model_that_cannot_run_is_a_row_with_the_reason(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(config: Config, *rest: Any, **options: Any) -> Any:
        if config.model.name == "gat":
            raise ConfigError("DGL cannot be imported")
        return train(config, *rest, **options)

    monkeypatch.setattr(module, "train", refuse)
    rows = compared(configurations(config_of(graph, *OVERRIDES), ["gat", "mlp"], OVERRIDES, tmp_path))
    assert [(row.model, row.reason) for row in rows] == [("mlp", ""), ("gat", "DGL cannot be imported")]
    write_comparison(rows, tmp_path)
    assert "gat,,,,,,,,,DGL cannot be imported,False" in (tmp_path / "compare.csv").read_text()


def test_models_are_named_once_and_known() -> None:
    assert check_models("mlp, gcn") == ["mlp", "gcn"]
    assert {"nodeformer", "gat"} < set(check_models(None))
    with pytest.raises(ConfigError, match="must be one of nodeformer"):
        check_models("mlp,gnc")
    with pytest.raises(ConfigError, match="names a model twice"):
        check_models("mlp,mlp")
