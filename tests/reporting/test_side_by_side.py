"""Several runs: a row each with means over the seeds, overlaid curves, and the settings in which they differ."""

import json
import shutil
import statistics
from pathlib import Path

import pytest

from nfdist.reporting.page import several_runs
from nfdist.reporting.run_facts import gather_course
from nfdist.reporting.side_by_side import mean_and_deviation, run_names
from nfdist.runs.run import Run
from tests.reporting.building import train_run
from tests.reporting.drawn import drawings, text_of
from tests.reporting.explained import Explained


@pytest.fixture(scope="module")
def pair(explained: Explained, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pair")
    other = train_run(
        folder / "mlp", explained.graph, False, model={"name": "mlp"}, relation={"order": 0}, train={"edge_loss": 0.0}
    )
    return [Path(shutil.copytree(explained.path, folder / "run")), other]


def test_a_row_has_the_mean_and_deviation_of_the_result(pair: list[Path]) -> None:
    seen = " ".join(text_of(several_runs([gather_course(path) for path in pair])).split())
    for path in pair:
        result = Run.open(path).result()
        assert result is not None
        assert f"{result['test_mean']:.4f} ± {result['test_std']:.4f}" in seen
        assert f"{result['smoothed_test_mean']:.4f} ± {result['smoothed_test_std']:.4f}" in seen
    assert 'model.name "nodeformer" "mlp"' in seen
    assert "run.dir" in seen
    assert "train.learning_rate" not in seen


def test_curves_of_all_runs_and_seeds_lie_over_each_other(pair: list[Path]) -> None:
    loss = drawings(several_runs([gather_course(path) for path in pair]))[0]
    assert sum(element.tag.endswith("polyline") for element in loss) == 4  # two seeds of two runs
    tips = json.loads(loss.attrib["data-hover"])
    first = next(line for line in Run.open(pair[0]).metrics() if line["kind"] == "step")
    assert f"run, seed 0: {first['loss']:.3g}" in tips[0][1]


def test_runs_are_called_by_as_much_of_their_path_as_tells_them_apart(pair: list[Path], tmp_path: Path) -> None:
    facts = [gather_course(path) for path in pair]
    assert run_names(facts) == ["run", "mlp"]
    same = [gather_course(shutil.copytree(pair[1], tmp_path / name / "run")) for name in ("a", "b")]
    assert run_names(same) == ["a/run", "b/run"]


def test_mean_and_deviation() -> None:
    values = [0.5, 0.6, 0.9]
    assert mean_and_deviation(values) == f"{statistics.fmean(values):.4f} ± {statistics.stdev(values):.4f}"
    assert (mean_and_deviation([0.5]), mean_and_deviation([])) == ("0.5000", "–")
