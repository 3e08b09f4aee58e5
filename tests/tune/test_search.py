"""Trials are trainings of the configuration with other values, chosen by validation scores and by nothing else."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch

from nfdist import settings
from nfdist.errors import ConfigError, PartitionError
from nfdist.rendezvous import Place
from nfdist.training.job import train
from nfdist.tune.study_files import BEST_FILE
from nfdist.world import World
from tests.tune.building import build_graph, config_of, facts_of, purpose_of, run_study, search_as_rank
from tests.worlds import run_world


@pytest.mark.parametrize(("smoothing", "answers"), [("auto", "smoothed"), ("none", "best")])
def test_the_best_settings_train_to_the_score_they_were_chosen_for(
    graph: Path, tmp_path: Path, smoothing: str, answers: str
) -> None:
    summary = run_study(purpose_of(graph, f"evaluate.smoothing={smoothing}"), tmp_path / "out", 4)
    assert summary["trials"] == {"complete": 4, "pruned": 0, "failed": 0}
    config = settings.load(tmp_path / "out" / BEST_FILE, [f'run.dir="{tmp_path / "run"}"'])
    result, _ = train(config, Place(), World(), torch.device("cpu"), False)
    assert result is not None
    scores = [seed[answers]["valid"] for seed in result["per_seed"]]
    assert len(scores) == 2
    assert statistics.fmean(scores) == summary["best"]["valid"]
    assert summary["best"]["valid"] == max(score for _, _, score, _ in facts_of(tmp_path / "out"))


def test_trials_leave_no_runs(graph: Path, tmp_path: Path) -> None:
    run_study(purpose_of(graph, f'run.dir="{tmp_path / "run"}"'), tmp_path / "out", 1)
    assert not (tmp_path / "run").exists()
    assert {path.name for path in (tmp_path / "out").iterdir() if path.suffix != ".lock"} == {
        *("study.json", "study.journal", "trials.csv", "best.toml", "importance.svg")
    }


def test_test_labels_change_nothing(graph: Path, tmp_path: Path) -> None:
    poisoned = build_graph(tmp_path / "poisoned", poisoned=True)
    results: list[Any] = []
    for number, one in enumerate((graph, poisoned)):
        run_study(purpose_of(one), tmp_path / str(number), 6)
        results.append(facts_of(tmp_path / str(number)))
        config = config_of(one, f'run.dir="{tmp_path / f"run-{number}"}"')
        trained, _ = train(config, Place(), World(), torch.device("cpu"), False)
        assert trained is not None
        results.append(trained["test_mean"])
    assert results[1] != results[3], "the labels are poisoned"
    assert results[0] == results[2]


def test_settings_that_are_refused_or_diverge_fail_their_trial_alone(graph: Path, tmp_path: Path) -> None:
    search = {"relation.order": [1, 0], "train.learning_rate": [0.01, 1e9], "train.edge_loss": [0.0, 0.1]}
    overrides = ("train.epochs=8", "model.norm=none", "train.seeds=[0]")
    summary = run_study(purpose_of(graph, *overrides, search=search), tmp_path / "out", 12)
    states = {
        (state, values["relation.order"] == 0 and values["train.edge_loss"] > 0, values["train.learning_rate"] > 1)
        for state, values, _, _ in facts_of(tmp_path / "out")
    }
    assert ("failed", True, False) in states
    assert ("failed", False, True) in states
    assert ("complete", False, False) in states
    assert not {("complete", True, False), ("failed", False, False)} & states
    assert summary["trials"]["failed"] + summary["trials"]["complete"] + summary["trials"]["pruned"] == 12
    reasons = (tmp_path / "out" / "trials.csv").read_text()
    assert "needs a graph" in reasons
    assert "lower train.learning_rate" in reasons


def test_what_no_setting_can_cure_ends_the_study(graph: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no labeled nodes to validate on"):
        run_study(purpose_of(graph, "data.split=random:0.8/0/0.2"), tmp_path / "out", 3)
    gone = purpose_of(build_graph(tmp_path / "gone"))
    (tmp_path / "gone" / "graph").rename(tmp_path / "elsewhere")
    with pytest.raises(PartitionError):
        run_study(gone, tmp_path / "second", 3)


def test_time_that_is_over_interrupts_a_trial_and_begins_none(graph: Path, tmp_path: Path) -> None:
    purpose = purpose_of(graph)
    summary = run_study(purpose, tmp_path / "out", 3, seconds=0.01)
    assert summary["best"] is None
    assert sum(summary["trials"].values()) == 0
    run_study(purpose, tmp_path / "out", 3)
    run_study(purpose, tmp_path / "whole", 3)
    assert facts_of(tmp_path / "out") == facts_of(tmp_path / "whole")


def test_two_ranks_make_the_trials_of_one(graph: Path, tmp_path: Path) -> None:
    scopes = ("attention.scope=world", "relation.scope=world", "train.precision=float64", "train.seeds=[0]")
    text = settings.dump(config_of(graph, *scopes))
    together, nothing = run_world(2, search_as_rank, text, str(tmp_path / "two"), 3)
    alone = search_as_rank(World(), text, str(tmp_path / "one"), 3)
    assert nothing == ""
    for (state, values, score, last), (state_alone, values_alone, score_alone, last_alone) in zip(
        json.loads(together), json.loads(alone), strict=True
    ):
        assert (state, values) == (state_alone, values_alone)
        assert (score, last) == pytest.approx((score_alone, last_alone))
