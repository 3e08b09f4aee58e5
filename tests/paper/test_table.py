"""The table's figures follow from the result files, and only from these."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import table
from experiments import Experiment, Figure, tuned_row
from results import Result, SeedScore, read_result, seed_scores, total_seconds

from tests.paper.building import made_result


def made_row(row_id: str, group: str = "nodeformer", dataset: str = "cora", method: str = "NodeFormer") -> Experiment:
    figure = Figure(88.69, 0.46) if group == "nodeformer" else None
    return Experiment(row_id, group, dataset, method, "launch/paper/cora.toml", "cora", paper=figure)


def made_entry(row: Experiment, tests: list[float], first_seed: int = 0) -> table.Entry:
    return table.Entry(row, made_result(row.id, tests, first_seed=first_seed))


def test_a_result_survives_its_file(tmp_path: Path) -> None:
    result = made_result("cora", [0.8, 0.9])
    result.write(tmp_path)
    assert read_result(tmp_path, "cora") == result
    assert read_result(tmp_path, "citeseer") is None


def test_mean_and_deviation_are_of_the_seeds_best_epochs_in_percent() -> None:
    result = made_result("cora", [0.80, 0.90, 0.91])
    assert result.mean == pytest.approx(87.0)
    assert result.deviation == pytest.approx(math.sqrt(((7**2) + 3**2 + 4**2) / 2))
    assert made_result("cora", [0.8]).deviation is None


def test_a_row_shows_measured_beside_published() -> None:
    cells = table.score_cells(made_entry(made_row("cora"), [0.86, 0.88]))
    assert cells[:8] == ["Cora", "NodeFormer", "accuracy", "87.00 ± 1.41", "88.69 ± 0.46", "-1.69", "2 x 1000", "12"]
    assert cells[8:] == ["256 MiB", "abc1234", "`nfdist train x.toml`"]


def test_the_paired_difference_has_the_standard_error_of_its_mean() -> None:
    ours, theirs = made_result("cora", [0.80, 0.90, 0.86]), made_result("cora-published", [0.79, 0.86, 0.85])
    mean, error, count = table.paired_difference(ours, theirs)
    assert count == 3
    assert mean == pytest.approx(2.0)
    assert error == pytest.approx(math.sqrt((1 + 4 + 1) / 2) / math.sqrt(3))
    reordered = Result(**{**vars(theirs), "per_seed": theirs.per_seed[::-1][:2]})
    assert table.paired_difference(ours, reordered)[0] == pytest.approx((4 + 1) / 2)  # by seed, and only shared ones


@pytest.mark.parametrize(("ours", "verdict"), [([0.85, 0.87, 0.89], "yes"), ([0.80, 0.81, 0.83], "no")])
def test_the_pairs_say_whether_nodeformer_is_below(ours: list[float], verdict: str) -> None:
    published = made_row("cora-published", "published", method="published recipe")
    entries = [made_entry(made_row("cora"), ours), made_entry(published, [0.85, 0.86, 0.88])]
    assert table.paired_table(entries, "nodeformer", "published")[-1].endswith(f"| {verdict} |")


def test_a_group_is_paired_only_on_the_datasets_it_has() -> None:
    entries = [
        made_entry(made_row("cora"), [0.80, 0.90]),
        made_entry(made_row("cora-alike", "alike", method="NodeFormer, alike"), [0.85, 0.88]),
        made_entry(made_row("cora-published", "published", method="recipe"), [0.84, 0.86]),
        made_entry(made_row("actor-published", "published", "actor", "recipe"), [0.34, 0.36]),
    ]
    (line,) = table.paired_table(entries, "alike", "published")[2:]
    assert line == "| Cora | recipe | 86.50 ± 2.12 | 85.00 ± 1.41 | +1.50 ± 0.50 | 2 | yes |"


def test_pairs_on_more_splits_are_shown_alone_and_pooled() -> None:
    entries = [
        made_entry(made_row(f"{dataset}{method}", group, dataset, method), tests, first_seed)
        for dataset, first_seed, group, method, tests in (
            ("actor", 0, "nodeformer", "NodeFormer", [0.34, 0.36]),
            ("actor", 0, "published", "recipe", [0.35, 0.37]),
            ("actor-more", 5, "nodeformer", "NodeFormer", [0.38, 0.37]),
            ("actor-more", 5, "published", "recipe", [0.34, 0.36]),
        )
    ]
    lines = table.paired_table(entries, "nodeformer", "published")[2:]
    assert [line.split(" | ")[0] for line in lines] == [
        "| Actor",
        "| Actor, these and five more splits",
        "| Actor, five more splits",
    ]
    assert [line.split(" | ")[4:6] for line in lines] == [
        ["-1.00 ± 0.00", "2"],
        ["+0.75 ± 1.18", "4"],
        ["+2.50 ± 1.50", "2"],
    ]


def test_the_best_method_of_a_dataset_is_bold() -> None:
    entries = [
        made_entry(made_row("cora"), [0.86, 0.88]),
        made_entry(made_row("cora-gcn", "baseline", method="GCN"), [0.89, 0.89]),
        made_entry(made_row("actor-gcn", "baseline", "actor", "GCN"), [0.3]),
        table.Entry(made_row("actor", dataset="actor"), None, missing="not run yet"),
    ]
    assert table.methods_table(entries)[2:] == [
        "| NodeFormer | 87.00 ± 1.41 | not run yet |",
        "| GCN | **89.00 ± 0.00** | **30.00** |",
    ]
    assert table.unreached(entries) == [
        "",
        "- Actor: no method reaches the published 88.69 on these splits, GCN is the nearest",
    ]


def test_tuned_methods_are_compared_raw_and_smoothed() -> None:
    rows = {"nodeformer": [0.80, 0.90], "gcn": [0.81, 0.85], "mlp": [0.5, 0.6]}
    entries = []
    for method, tests in rows.items():
        row, result = tuned_row("cora", method), made_result("x", tests)
        smoothed = tuple(replace(score, smoothed_test=score.test + 0.01) for score in result.per_seed)
        entries.append(table.Entry(row, result if method == "mlp" else replace(result, per_seed=smoothed)))
    assert table.tuned_table(entries)[2:] == [
        "| NodeFormer, tuned, raw | 85.00 |",
        "| GCN, tuned, raw | 83.00 |",
        "| MLP, tuned, raw | 55.00 |",
        "| NodeFormer minus the best baseline, raw | +2.00 (2 of 4) |",
        "| NodeFormer, tuned, smoothed | 86.00 |",
        "| GCN, tuned, smoothed | 84.00 |",
        "| MLP, tuned, smoothed |  |",
        "| NodeFormer minus the best baseline, smoothed | +2.00 (1 of 4) |",
    ]


def test_the_page_says_what_failed_and_what_was_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NFDIST_DATA", raising=False)
    made_result("cora", [0.86, 0.88]).write(tmp_path / "results")
    made_result("citeseer", [], failed="exit code 1: it | broke").write(tmp_path / "results")
    page = table.write_table(tmp_path / "results", quick=False)
    assert page == tmp_path / "RESULTS.md"
    text = page.read_text()
    assert "| Cora | NodeFormer | accuracy | 87.00 ± 1.41 | 88.69 ± 0.46 | -1.69 |" in text
    assert "| Citeseer | NodeFormer |  | failed: exit code 1: it \\| broke | 76.33 ± 0.59 |" in text
    assert "| Amazon2M | NodeFormer |  | not run: no data |" in text
    assert "| digits, k = 5 | NodeFormer |  | not run yet |" in text
    assert "15 nodes without a label" in text
    assert "make paper`" in text
    assert "## Figures" not in text


def test_the_page_links_the_figures_that_exist(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "grid.svg").touch()
    text = table.write_table(tmp_path / "results", quick=False).read_text()
    assert "(figures/grid.svg)" in text
    assert "(figures/transductive.svg)" not in text


def test_a_quick_page_says_so_at_its_top(tmp_path: Path) -> None:
    page = table.write_table(tmp_path / "results-quick", quick=True)
    assert page.name == "RESULTS-quick.md"
    assert "**Quick: one seed" in page.read_text().splitlines()[2]


def test_results_of_other_settings_are_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Experiment("digits", "stand-in", "digits", "NodeFormer", "launch/paper/mini-imagenet.toml", "digits")
    made_result("digits", [0.9], digest="of something else").write(tmp_path)
    monkeypatch.setenv("NFDIST_DATA", str(tmp_path))
    assert table.measured(table.entry_of(row, tmp_path)) == "90.00 (of other settings)"
    monkeypatch.delenv("NFDIST_DATA")  # then there is nothing to compare with
    assert table.measured(table.entry_of(row, tmp_path)) == "90.00"


def test_scores_are_read_from_nested_and_from_flat_outcomes() -> None:
    best = {"epoch": 3, "train": 0.9, "valid": 0.7, "test": 0.6}
    nested = {"per_seed": [{"seed": 1, "best": best}], "seconds": {"train": 4.0, "wait": 1.0, "evaluate": 2.0}}
    flat = {"per_seed": [{"seed": 1, "epoch": 3, "valid": 0.7, "test": 0.6, "seconds": 6.0}], "seconds": 6.0}
    assert seed_scores(nested) == seed_scores(flat) == (SeedScore(1, 3, 0.7, 0.6),)
    assert total_seconds(nested) == total_seconds(flat) == 6.0
