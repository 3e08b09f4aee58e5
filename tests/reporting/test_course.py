"""Curves and sums are those of the lines that a training wrote."""

import numpy as np
import pytest

from nfdist.config import Config
from nfdist.errors import CheckpointError
from nfdist.reporting.course import read_course
from nfdist.runs.run import Run
from tests.reporting.explained import Explained


def test_curves_are_the_lines_of_each_seed(explained: Explained) -> None:
    lines, course = Run.open(explained.path).metrics(), explained.facts.course
    assert [one.seed for one in course.seeds] == [0, 1]
    assert course.finished
    for one in course.seeds:
        steps = [line for line in lines if line["kind"] == "step" and line["seed"] == one.seed]
        scores = [line for line in lines if line["kind"] == "evaluation" and line["seed"] == one.seed]
        assert one.steps["loss"] == tuple((line["step"], line["loss"]) for line in steps)
        for split in ("train", "valid", "test"):
            assert one.scores[split] == tuple((line["epoch"], line[split]) for line in scores)
            assert one.losses[split] == tuple((line["epoch"], line[f"{split}_loss"]) for line in scores)
        assert (one.epoch, one.num_steps) == (3, len(steps))
        assert one.best is not None
        assert one.best["valid"] == max(line["valid"] for line in scores)


def test_the_time_of_all_phases_is_that_of_steps_evaluations_and_checkpoints(explained: Explained) -> None:
    lines, course, result = (
        Run.open(explained.path).metrics(),
        explained.facts.course,
        Run.open(explained.path).result(),
    )
    assert result is not None
    recorded = sum(line["seconds"] for line in lines) + result["seconds"]["checkpoint"]
    assert sum(course.seconds.values()) == pytest.approx(recorded)
    steps = [line for line in lines if line["kind"] == "step"]
    nodes, seconds = (sum(line[name] for line in steps) for name in ("nodes", "seconds"))
    assert course.nodes_per_second == pytest.approx(nodes / seconds)
    assert course.peak_memory_bytes == result["peak_memory_bytes"]
    worked = np.sum([entry["rank_seconds"] for entry in result["per_seed"]], 0)
    assert course.rank_seconds == pytest.approx(worked)
    assert 0 < course.rank_seconds[0] < sum(line["seconds"] for line in steps)


def test_epochs_that_are_over_are_counted_without_evaluations_too() -> None:
    step = {"kind": "step", "seed": 0, "epoch": 4, "step": 9, "seconds": 1.0, "nodes_per_second": 1.0, "loss": 1.0}
    assert [one.epoch for one in read_course([step], None, Config()).seeds] == [4]
    assert [one.epoch for one in read_course([step], {"per_seed": [{"seed": 0}]}, Config()).seeds] == [5]


def test_a_run_without_a_line_has_an_empty_course() -> None:
    course = read_course([], None, Config())
    assert (course.seeds, course.finished, course.nodes_per_second, course.rank_seconds) == ((), False, None, ())


def test_lines_that_no_training_wrote_are_refused() -> None:
    with pytest.raises(CheckpointError, match="lacks what a training writes"):
        read_course([{"kind": "step", "seed": 0}], None, Config())
