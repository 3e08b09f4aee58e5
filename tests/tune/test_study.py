"""A study is a function of what its trials came to, whoever was killed in between; one process at a time owns it."""

from pathlib import Path

import pytest

from nfdist import settings
from nfdist.errors import CheckpointError
from nfdist.tune.purpose import Purpose
from nfdist.tune.search_space import parse_space
from nfdist.tune.study import JOURNAL_FILE, Study, owned_study
from tests.tune.building import SEARCH, SETTINGS, facts

PURPOSE = Purpose(settings.parse(SETTINGS), parse_space(SEARCH), "accuracy", True, "0")


def score(values: dict[str, float]) -> float:
    return 1.0 - abs(values["train.learning_rate"] - 0.03) - values["model.dropout"]


def make(study: Study, most: int) -> None:
    """Make trials of an objective that costs nothing."""
    while (suggestion := study.claim(most)) is not None:
        suggestion.report(0, score(suggestion.values))
        suggestion.complete(score(suggestion.values), 1.0)


def test_the_first_trial_has_the_values_of_the_configuration(tmp_path: Path) -> None:
    with owned_study(tmp_path / "out", PURPOSE) as study:
        first = study.claim(1)
        assert first is not None
        assert first.values == {"train.learning_rate": 0.01, "model.dropout": 0.0}
        assert study.claim(1) is None, "it is under way and counts"


def test_a_study_that_was_killed_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    with owned_study(tmp_path / "whole", PURPOSE) as study:
        make(study, 16)
        whole = facts(study)
    for stop in (0, 1, 7, 12):
        with owned_study(tmp_path / "cut", PURPOSE) as study:
            make(study, stop)
            study.claim(99)  # and then the process is gone
        with owned_study(tmp_path / "cut", PURPOSE) as study:
            assert [one.state for one in study.trials() if one.state == "running"] == []
            assert facts(study) == whole[:stop]
    with owned_study(tmp_path / "cut", PURPOSE) as study:
        make(study, 16)
        assert facts(study) == whole
        assert sum(one.state == "interrupted" for one in study.trials()) == 4


def test_later_trials_follow_what_was_good(tmp_path: Path) -> None:
    with owned_study(tmp_path / "out", PURPOSE) as study:
        make(study, 30)
        scores = [one.score for one in study.trials() if one.score is not None]
    assert len(scores) == 30
    assert sum(scores[15:]) > sum(scores[:15])


@pytest.mark.parametrize("larger_is_better", [True, False])
def test_the_metric_says_what_is_best(larger_is_better: bool, tmp_path: Path) -> None:
    purpose = Purpose(PURPOSE.config, PURPOSE.space, "log_loss", larger_is_better, "0")
    with owned_study(tmp_path / "out", purpose) as study:
        make(study, 6)
        scores = [one.score for one in study.ranked()]
    assert scores == sorted(scores, key=float, reverse=larger_is_better)  # type: ignore[arg-type]


def test_a_trial_far_behind_the_others_is_pruned(tmp_path: Path) -> None:
    def course(study: Study, final: float) -> bool:
        suggestion = study.claim(99)
        assert suggestion is not None
        for step in range(20):
            if suggestion.report(step, final * step):
                suggestion.prune(1.0)
                return True
        suggestion.complete(final, 1.0)
        return False

    with owned_study(tmp_path / "out", PURPOSE) as study:
        assert not any(course(study, final) for final in (1.0, 1.1, 1.2, 1.3, 0.1))
        assert course(study, 0.1)
        assert not course(study, 2.0)


def test_a_line_that_was_not_written_whole_is_cut_off(tmp_path: Path) -> None:
    with owned_study(tmp_path / "out", PURPOSE) as study:
        make(study, 3)
        before = facts(study)
    journal = tmp_path / "out" / JOURNAL_FILE
    with journal.open("ab") as file:
        file.write(b'{"op_code":4,"wor')
    with owned_study(tmp_path / "out", PURPOSE) as study:
        assert facts(study) == before
        make(study, 4)
    with owned_study(tmp_path / "out", PURPOSE) as study:
        assert len(facts(study)) == 4
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:5], b"nonsense\n", *lines[5:]]))
    with pytest.raises(CheckpointError, match=r"study\.journal cannot be read"), owned_study(tmp_path / "out", PURPOSE):
        pass


def test_importances_follow_what_the_scores_depend_on(tmp_path: Path) -> None:
    with owned_study(tmp_path / "out", PURPOSE) as study:
        make(study, 3)
        assert study.importances() == {}, "too few to tell"
        make(study, 20)
        importances = study.importances()
    assert list(importances) == ["model.dropout", "train.learning_rate"]
    assert sum(importances.values()) == pytest.approx(1.0)


def test_a_study_has_one_owner(tmp_path: Path) -> None:
    with (
        owned_study(tmp_path / "out", PURPOSE),
        pytest.raises(CheckpointError, match="is being tuned by process"),
        owned_study(tmp_path / "out", PURPOSE),
    ):
        pass
