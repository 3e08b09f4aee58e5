"""Every row names files that exist and settings that nfdist accepts."""

from pathlib import Path

import pytest
from experiments import GROUPS, NAMES, PAIRWISE, QUICK_OVERRIDES, ROOT, Experiment, chosen_rows, experiments

from nfdist import settings
from nfdist.partitioning.recipe import Recipe

ROWS = experiments()


def test_ids_are_unique_and_name_files() -> None:
    names = [row.id for row in ROWS]
    assert len(set(names)) == len(names)
    assert all(Path(name).name == name for name in names)


@pytest.mark.parametrize("row", [*ROWS, *chosen_rows(True, [])], ids=lambda row: row.id)
def test_a_row_can_be_configured_and_partitioned(row: Experiment) -> None:
    config = settings.load(ROOT / row.config, row.overrides)
    assert config.data.partition
    assert Recipe.build(str(ROOT / "partitions" / f"{row.recipe}.toml"), {}).source
    assert row.group in GROUPS
    assert row.script in ("train", "published", *PAIRWISE)


def test_every_published_dataset_is_a_row_with_nothing_changed() -> None:
    unchanged = {row.config for row in ROWS if row.group == "nodeformer" and not row.overrides}
    assert unchanged == {f"launch/paper/{path.name}" for path in (ROOT / "launch" / "paper").glob("*.toml")}


def test_rows_with_a_published_figure_have_a_name_in_the_table() -> None:
    assert {row.dataset for row in ROWS if row.group != "stand-in"} <= set(NAMES)


def test_the_published_recipe_shares_its_splits_with_nodeformer() -> None:
    pairs = {row.dataset: row for row in ROWS if row.group == "nodeformer"}
    for row in ROWS:
        if row.group == "published":
            theirs, ours = (settings.load(ROOT / side.config, side.overrides) for side in (row, pairs[row.dataset]))
            assert theirs.data == ours.data
            assert set(theirs.train.seeds) <= set(ours.train.seeds)


def test_quick_rows_are_some_rows_with_one_seed_and_fewer_epochs() -> None:
    quick = chosen_rows(True, [])
    assert {row.id for row in quick} <= {row.id for row in ROWS}
    assert {"cora", "citeseer", "actor", "cora-no-edge-loss", "cora-gcn", "actor-mlp"} <= {row.id for row in quick}
    for row in quick:
        assert row.overrides[-len(QUICK_OVERRIDES) :] == QUICK_OVERRIDES
        train = settings.load(ROOT / row.config, row.overrides).train
        assert (len(train.seeds), train.epochs) == (1, 60)


def test_rows_are_chosen_by_patterns_in_order_of_importance() -> None:
    assert [row.id for row in chosen_rows(False, ["actor-*", "cora"])][:2] == ["cora", "actor-published"]
    assert chosen_rows(False, ["nothing*"]) == []
