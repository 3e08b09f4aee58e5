"""Searches for the tuned rows: the same budget for each, written so that `run.py` trains what was found."""

import json
import shutil
from pathlib import Path

import experiments
import pytest
import search
from experiments import tuned_row
from run import Workshop

from nfdist import settings
from nfdist.config import Config
from tests.paper.building import RecordedChildren
from tests.training.building import build_partition

BEST = """# Trial 3: validation accuracy 0.9000, the mean of seeds 0, 1.

[data]
partition = "/a/machine/of/mine"
split = "random:0.5/0.25/0.25"

[model]
name = "gcn"
dropout = 0.25

[relation]
order = 1

[train]
edge_loss = 0.0
seeds = [0, 1]

[run]
dir = "/a/machine/of/mine/run"
"""
TRIALS = "trial,state,valid\n0,complete,0.8\n1,pruned,\n2,failed,\n3,complete,0.9\n"


class Searching(RecordedChildren):
    """Leaves what `nfdist tune` leaves, on a machine that is so busy that a core is at work half of the time."""

    def run(self, command: list[str], environment: dict[str, str], log: Path) -> str:  # type: ignore[override]
        if "tune" in command:
            study = Path(command[command.index("--out") + 1])
            study.mkdir(exist_ok=True)
            (study / "best.toml").write_text(BEST)
            (study / "trials.csv").write_text(TRIALS)
            hours = float(command[command.index("--hours") + 1])
            super().run(command, environment, log)
            return f"a table\n{json.dumps({'core_seconds': 3600 * hours / 2})}\n"
        return super().run(command, environment, log)


@pytest.fixture
def searching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> search.Search:
    partition = build_partition(tmp_path / "graph", 1)
    monkeypatch.setattr(Workshop, "partition", lambda *_: partition)
    monkeypatch.setattr(search, "ROOT", tmp_path)
    monkeypatch.setattr(search, "located_source", lambda row: row)
    return search.Search(Workshop(tmp_path / "work", tmp_path / "results", Searching()), tuned_row("cora", "gcn"))


def test_what_is_found_can_be_trained_anywhere_on_five_splits(searching: search.Search, tmp_path: Path) -> None:
    assert "2 complete, 1 pruned, 1 failed" in searching.run(2.0)
    path = tmp_path / "launch" / "tuned" / "cora-gcn.toml"
    text = path.read_text()
    assert text.startswith("# GCN, tuned: 2 minutes of one core, trials: 2 complete, 1 pruned, 1 failed.\n# Trial 3:")
    assert "/a/machine" not in text
    found = settings.load(path)
    assert (found.data.partition, found.model.dropout, found.train.seeds) == ("partitions/cora", 0.25, (0, 1, 2, 3, 4))
    assert found.run == Config().run


def test_a_search_begins_with_usual_settings_and_ends_with_its_minutes(searching: search.Search) -> None:
    assert not searching.is_done(4.0)
    searching.run(4.0)
    base = settings.load(searching.folder / "base.toml")
    assert (base.model.name, base.model.standardize, base.train.seeds) == ("gcn", True, (0, 1, 2, 3))  # dense features
    children = searching.workshop.children
    assert isinstance(children, Searching)
    assert asked_minutes(children) == pytest.approx([4, 2, 1])  # half a minute is not worth another start
    searching.run(4.0)
    assert len(children.asked) == 3  # it has had them
    searching.run(5.0)
    assert asked_minutes(children)[3:] == pytest.approx([1.5, 0.75])
    assert [searching.is_done(minutes) for minutes in (4.0, 5.0, 5.5)] == [True, True, False]


def test_more_minutes_without_the_study_begin_with_what_was_found(searching: search.Search) -> None:
    searching.run(2.0)
    shutil.rmtree(searching.folder)
    searching.run(6.0)
    base = settings.load(searching.folder / "base.toml")
    assert (base.model.dropout, base.train.seeds) == (0.25, (4, 3, 2, 1))  # other splits, and so other trials
    children = searching.workshop.children
    assert isinstance(children, Searching)
    assert asked_minutes(children)[2:] == pytest.approx([4, 2, 1])
    head = searching.path.read_text().splitlines()[0]
    assert head.startswith("# GCN, tuned: 6 minutes of one core, the last 4 from what was found before, trials: 2")
    assert searching.is_done(6.0)


def test_a_larger_graph_is_searched_on_fewer_splits(searching: search.Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SEARCHED_NODES", 250)  # the graph has 245
    searching.run(1.0)
    assert settings.load(searching.folder / "base.toml").train.seeds == (0, 1)


def asked_minutes(children: Searching) -> list[float]:
    return [60 * float(command[command.index("--hours") + 1]) for command in children.asked]


def test_methods_of_a_graph_are_not_searched_for_without_one() -> None:
    without = [row.method for row in experiments.tuned_rows() if row.dataset == "20news"]
    assert without == ["NodeFormer, tuned", "MLP, tuned"]
    assert len(list(experiments.tuned_rows())) == 6 * 5 + 2


def test_every_search_is_a_row_once_it_has_found_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "ROOT", tmp_path)
    monkeypatch.setattr(experiments, "TUNED", tmp_path / "launch" / "tuned")
    assert not list(experiments._tuned())
    (tmp_path / "launch" / "tuned").mkdir(parents=True)
    (tmp_path / "launch" / "tuned" / "actor-mlp.toml").touch()
    (row,) = experiments._tuned()
    assert (row.id, row.dataset, row.config) == ("actor-tuned-mlp", "actor", "launch/tuned/actor-mlp.toml")
