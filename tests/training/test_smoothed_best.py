"""The end of a seed: its best checkpoint is smoothed once, as nfdist evaluate will smooth it."""

from pathlib import Path

import pytest

import nfdist
from nfdist import settings
from nfdist.runs.run import Run
from nfdist.world import World
from tests.training.building import build_partition, config_of, run_training

EVALUATED = ("train.evaluate_every=1", "train.seeds=[0,3]")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graph") / "partition")


def test_each_seed_has_smoothed_scores_and_strengths_that_evaluate_applies(graph: Path, tmp_path: Path) -> None:
    config = config_of(graph, tmp_path / "run", *EVALUATED)
    result = run_training(World(), settings.dump(config))
    assert result is not None
    tests = [seed["smoothed"]["test"] for seed in result["per_seed"]]
    assert result["smoothed_test_mean"] == sum(tests) / 2
    assert result["smoothed_test_std"] is not None
    assert Run.open(tmp_path / "run").result() == result
    kept = sorted((tmp_path / "run" / "smoothing").iterdir())
    before = [path.read_bytes() for path in kept]
    for seed in result["per_seed"]:
        assert (seed["smoothed"]["epoch"], seed["smoothed"]["step"]) == (seed["best"]["epoch"], seed["best"]["step"])
        path = tmp_path / "run" / "checkpoints" / f"seed-{seed['seed']}" / f"step-{seed['best']['step']:08d}"
        smoothed = nfdist.evaluate(tmp_path / "run", checkpoint=path, outputs=False)["smoothed"]
        for name in ("strengths", "train", "valid", "test", "loss"):
            assert smoothed[name] == seed["smoothed"][name]
    assert [path.read_bytes() for path in kept] == before


def test_the_best_epoch_is_that_of_raw_scores(graph: Path, tmp_path: Path) -> None:
    results = []
    for smoothing in ("auto", "none"):
        config = config_of(graph, tmp_path / smoothing, *EVALUATED, f"evaluate.smoothing={smoothing}")
        results.append(run_training(World(), settings.dump(config)))
    smoothed, raw = results
    assert smoothed is not None
    assert raw is not None
    assert [seed["best"] for seed in smoothed["per_seed"]] == [seed["best"] for seed in raw["per_seed"]]
    assert [seed["smoothed"] for seed in raw["per_seed"]] == [None, None]
    assert raw["smoothed_test_mean"] is raw["smoothed_test_std"] is None


def test_a_training_that_is_not_evaluated_is_not_smoothed(graph: Path, tmp_path: Path) -> None:
    result = run_training(World(), settings.dump(config_of(graph, tmp_path / "run", "train.epochs=1")))
    assert result is not None
    assert result["per_seed"][0]["smoothed"] is None
    assert not (tmp_path / "run" / "smoothing").exists()
