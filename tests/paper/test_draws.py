"""Checkpoints scored with other draws of the directions of evaluation."""

from pathlib import Path

import pytest
import table
from draws import score_draws, sum_up

from nfdist.runs.run import Run
from nfdist.settings import dump
from nfdist.world import World
from tests.paper.test_table import made_entry, made_row
from tests.train.building import build_partition, config_of, run_training


def test_the_own_draw_is_that_of_the_training_and_others_differ(tmp_path: Path) -> None:
    overrides = ("train.seeds=[3, 4]", "train.evaluate_every=10", "train.epochs=30", "train.learning_rate=0.03")
    overrides += ("model.dropout=0", "model.norm='none'", "train.batch_nodes=0")
    config = config_of(build_partition(tmp_path / "partition"), tmp_path / "run", *overrides)
    run_training(World(), dump(config))
    run = Run.open(tmp_path / "run")
    for seed in (3, 4):
        own, *others = score_draws(run, seed, 5)
        best = run.best_of(seed)
        assert best is not None
        assert own == (best["valid"], best["test"])
        assert len(others) == 5
        assert set(others) != {own}


def test_the_chosen_draw_is_the_best_of_a_seed_in_validation() -> None:
    found = sum_up([[(0.5, 0.6), (0.7, 0.4), (0.6, 0.8)], [(0.9, 0.7), (0.1, 0.9), (0.2, 0.5)]])
    assert found == pytest.approx({"own": 65, "others": 65, "deviation": 20, "chosen": 55})


def test_the_table_shows_draws_beside_the_published_recipe() -> None:
    recipe = made_entry(made_row("cora-published", "published", method="published recipe"), [0.8, 0.9])
    entries = [made_entry(made_row("cora"), [0.8, 0.9]), recipe]
    known = {"cora": {"draws": 31, "own": 85.0, "others": 84.5, "deviation": 0.25, "chosen": 86.0}}
    shown = table.render(entries, quick=False, draws=known)
    assert "| Cora | 85.00 | 84.50 | 0.25 | 86.00 | 31 | 85.00 ± 7.07 |\n" in shown
    assert "draw of directions" not in table.render(entries, quick=False)
