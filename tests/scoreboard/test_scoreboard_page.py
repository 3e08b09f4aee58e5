"""The page has the facts of all stages, the scores after equal time, and the times to equal scores."""

from pathlib import Path

import pytest
from jobs import jobs, stages
from scoreboard_page import NFDIST, best, count_states, course, page, seconds_until
from stage import FAILED, Facts
from train_for import summarized

from tests.scoreboard.building import facts

CURVE = [
    {"seconds": 60.0, "valid": 0.4, "test": 0.41},
    {"seconds": 120.0, "valid": 0.6, "test": 0.59},
    {"seconds": 180.0, "valid": 0.5, "test": 0.7},
]
TRAINED = {"steps": 70, "train_seconds": 180.0, "nodes_per_second": 1e5, "sent_bytes_a_step": 0, "curve": CURVE}
GCN = {"steps": 9, "curve": [{"seconds": 200.0, "valid": 0.55, "test": 0.54}], "load_seconds": 21.0}
GCN |= {"evaluate_seconds": 12.0, "evaluate_private_bytes": 3 << 30, "train_private_bytes": 5 << 30}
MADE = {"nodes": 1000, "edges": 5000, "edge_cut": 1000, "parts": 8, "stage_seconds": {"read": 3.0, "write": 1.0}}
MACHINE = {"processor": "2 cores", "limit": "20.0 GiB"}


def told() -> dict[str, Facts]:
    return {
        "partition": facts("partition", outcome=MADE),
        "train": facts("train", outcome=TRAINED, began="2026-01-01 00:10:00 UTC"),
        "evaluate": facts("evaluate", outcome={"seconds": 20.0, "valid": 0.6, "test": 0.595}),
        "GCN": facts("GCN", outcome=GCN),
        "GraphSAGE": facts("GraphSAGE", state=FAILED, why="out of memory in loading"),
    }


def lines(given: dict[str, Facts]) -> list[str]:
    job = jobs(True, Path("work"))[0]
    made = page(
        [(job, stages(job, Path("work")))], {(job.name, name): one for name, one in given.items()}, MACHINE, "it"
    )
    return made.splitlines()


def line(given: dict[str, Facts], start: str, number: int = 0) -> str:
    return [one for one in lines(given) if one.startswith(start)][number]


def test_a_stage_has_its_facts_and_its_scores() -> None:
    made = line(told(), "| evaluate |")
    assert made == "| evaluate | 10 | 12 | 1.00 GiB | 0.00 GiB | 0.00 GiB | 0.00 GiB |  | 60.00 | 59.50 |"
    assert line(told(), "| predict |") == "| predict | not run yet | | | | | | | | |"
    assert "1,000 nodes, 5,000 stored edges, 8 parts, 20.0% of the edges between parts." in lines(told())
    assert "- partition: read 3 s, write 1 s." in lines(told())
    assert "| begun | 2026-01-01 00:00:00 UTC, 5 stages in 1 minutes |" in lines(told())


def test_sides_are_compared_after_equal_time_and_at_equal_scores() -> None:
    ours = line(told(), "| nfdist |")
    assert ours == "| nfdist | 59.00 |  |  | 70 | 1.00 GiB | 20.0 s with its files | 1.00 GiB |  |  |"
    theirs = line(told(), "| GCN |")
    assert theirs == "| GCN | 54.00 | not reached | 120 | 9 | 5.00 GiB | 12.0 s | 3.00 GiB | 21 s |  |"


def test_what_failed_says_why_and_what_was_not_run_says_that() -> None:
    assert "failed: out of memory in loading" in line(told(), "| GraphSAGE |")
    assert line(told(), "| SGFormer |").endswith("| not run yet |")
    broken = {"train": facts("train", state=FAILED, why="no disk", seconds=3.0)}
    assert line(broken, "| train").startswith("| train **failed: no disk** | 3 |")
    assert count_states(told().values()) == "4 done, 1 failed"


def test_without_scores_on_the_way_the_evaluation_is_the_course() -> None:
    given = told()
    assert course(given, NFDIST) == CURVE
    given["train"] = facts("train", outcome={**TRAINED, "curve": []})
    assert course(given, NFDIST) == [{"seconds": 180.0, "valid": 0.6, "test": 0.595}]
    assert course({}, NFDIST) == []


def test_the_best_point_is_that_of_the_best_validation_score() -> None:
    assert best(CURVE) == CURVE[1]
    assert best([]) is None
    assert seconds_until(CURVE, 0.5) == 120.0
    assert seconds_until(CURVE, 0.61) is None


def test_a_training_is_summed_up_from_its_metrics() -> None:
    steps = [{"kind": "step", "seconds": 2.0, "nodes": 10 * n, "sent_bytes": 7, "loss": 1 / n} for n in (1, 2, 3, 4)]
    evaluation = {"kind": "evaluation", "seconds": 5.0, "valid": 0.1, "test": 0.2}
    found = summarized([*steps[:3], evaluation, steps[3]])
    assert found["curve"] == [{"seconds": 6.0, "valid": 0.1, "test": 0.2}]
    assert (found["steps"], found["train_seconds"], found["evaluate_seconds"]) == (4, 8.0, 5.0)
    assert found["nodes_per_second"] == pytest.approx(70 / 4)
    assert (found["sent_bytes_a_step"], found["loss"]) == (7, 0.25)
