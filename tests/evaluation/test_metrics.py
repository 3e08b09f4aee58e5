"""A metric is one file: added to the package, it scores any world and is refused where it does not apply."""

from pathlib import Path

import pytest
import torch.nn.functional as F

from nfdist import settings
from nfdist.cli.main import main
from nfdist.evaluation.metrics.metric import METRICS
from nfdist.runs.run import Run
from tests.evaluation.added_metric import brier_case, score_with_brier, train_with_brier
from tests.training.building import build_partition, config_of
from tests.worlds import run_world


@pytest.mark.parametrize("size", [1, 2])
def test_a_metric_is_added_by_one_file(tmp_path: Path, size: int) -> None:
    case = brier_case()
    errors = (case.logits.double().softmax(1) - F.one_hot(case.labels.clamp(min=0), 5)).square()
    for scores, name in run_world(size, score_with_brier, str(tmp_path)):
        assert (name, scores["metric"]) == ("brier", "brier")
        for code, split in enumerate(("train", "valid", "test"), start=1):
            wanted = errors[(case.labels >= 0) & (case.split == code)].mean(0)
            assert scores[split]["per_class"] == pytest.approx(wanted.tolist(), rel=1e-12)
            assert scores[split]["value"] == pytest.approx(float(wanted.mean()), rel=1e-12)


def test_the_smallest_score_is_the_best_where_larger_is_not_better(tmp_path: Path) -> None:
    wanted = ("evaluate.metric=brier", "train.evaluate_every=1", "train.epochs=6", "train.learning_rate=0.3")
    config = config_of(build_partition(tmp_path / "graph", 1), tmp_path / "run", *wanted)
    (result,) = run_world(1, train_with_brier, str(tmp_path / "added"), settings.dump(config))
    run = Run.open(tmp_path / "run")
    scores = [line["valid"] for line in run.metrics() if line["kind"] == "evaluation"]
    assert max(scores) > min(scores) == result["best"]["valid"]
    best = run.best_of(0)
    assert best is not None
    assert best["valid"] == min(scores)


def test_auto_stands_for_one_metric_of_every_kind_of_task() -> None:
    defaults = [kind for metric in METRICS.values() for kind in metric.default_for]
    assert sorted(defaults) == ["binary", "multi", "single"]
    assert all(metric.larger_is_better for metric in METRICS.values())
    assert all((metric.count is None) != (metric.count_together is None) for metric in METRICS.values())


def test_an_unknown_metric_is_one_line_and_leaves_no_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = config_of(build_partition(tmp_path / "graph", 1), tmp_path / "run")
    (tmp_path / "train.toml").write_text(settings.dump(config))
    capfd.readouterr()
    assert main(["train", str(tmp_path / "train.toml"), "evaluate.metric=recall"]) == 2
    known = "evaluate.metric must be one of auto, accuracy, f1_macro, f1_micro, roc_auc, got 'recall'"
    assert capfd.readouterr().err.splitlines() == [f"nfdist: {known}"]
    assert not (tmp_path / "run").exists()
