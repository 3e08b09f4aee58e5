"""Whatever happens to a training and its tracker, the tracker ends with every line once, in order."""

import random
from contextlib import suppress
from pathlib import Path

import pytest

from nfdist.observe.trackers.sender import Sender
from nfdist.observe.trackers.tracker import DOORS
from nfdist.runs.metrics_file import MetricsFile
from tests.observe.trackers.remembering import Memory, kinds_and_steps, lines_of, tracked_run, write_lines

ALL = [*lines_of(0, range(1, 21)), *lines_of(7, range(1, 21))]


def expected(seed: int) -> list[tuple[str, int]]:
    return kinds_and_steps([line for line in ALL if line["seed"] == seed])


@pytest.fixture(params=["forgets", "knows", "neither"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Like TensorBoard, like MLflow, and like W&B, which must not fail between what is added and its memory of it."""
    memory = Memory(forgets=request.param == "forgets", knows=request.param == "knows")
    monkeypatch.setitem(DOORS, "wandb", memory)
    return memory


@pytest.mark.parametrize("draw", range(20))
def test_a_run_that_is_killed_and_cut_back_is_told_once(draw: int, memory: Memory, tmp_path: Path) -> None:
    """Attempts begin where a checkpoint was, go on for a while, and end with the process or with a failing tracker."""
    generator, run, file = random.Random(draw), tracked_run(tmp_path / "run"), MetricsFile(tmp_path / "metrics.jsonl")
    reached = 0
    for _ in range(4):
        kept = generator.randint(0, reached)
        write_lines(file.path, ALL[:kept])
        sender = Sender("wandb", run, file.lines_after)
        for _ in range(generator.randint(0, 3)):
            kept = generator.randint(kept, len(ALL))
            write_lines(file.path, ALL[:kept])
            sender.send(everything=generator.random() < 0.5)
        reached = kept
        if memory.forgets or (memory.knows and generator.random() < 0.3):
            memory.fails = 1
            write_lines(file.path, ALL)
            with suppress(OSError):  # unless it has all
                sender.send(everything=True)
            memory.fails = 0
    write_lines(file.path, ALL)
    last = Sender("wandb", run, file.lines_after)
    last.send(everything=True)
    last.end({"per_seed": [{"seed": 0, "best": {"valid": 0.5}}, {"seed": 7, "best": None}]})
    last.close(finished=True)
    assert memory.told == {0: expected(0), 7: expected(7)}
    assert memory.results == {0: [{"best/valid": 0.5}], 7: [{}]}
    assert memory.closed == [True]


def test_a_result_is_told_again_only_after_more_steps(memory: Memory, tmp_path: Path) -> None:
    run, file = tracked_run(tmp_path / "run"), MetricsFile(tmp_path / "metrics.jsonl")
    for steps, results in ((10, 1), (10, 1), (12, 2)):
        write_lines(file.path, lines_of(0, range(1, steps + 1)))
        sender = Sender("wandb", run, file.lines_after)
        sender.send(everything=True)
        sender.end({"per_seed": [{"seed": 0, "best": {"step": steps}}]})
        sender.close(finished=True)
        assert memory.told == {0: kinds_and_steps(lines_of(0, range(1, steps + 1)))}
        if not memory.forgets:  # what was forgotten, the last step with all that came with it, is told again
            assert len(memory.results[0]) == results
    assert memory.results[0][-1] == {"best/step": 12.0}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"run": "another", "sent": {"0": {"step": 9}}, "ended": [0]}'])
def test_a_damaged_memory_of_what_was_sent_counts_for_nothing(content: str, memory: Memory, tmp_path: Path) -> None:
    run, file = tracked_run(tmp_path / "run"), MetricsFile(tmp_path / "metrics.jsonl")
    (run.path / "wandb").mkdir()
    (run.path / "wandb" / "sent.json").write_text(content)
    write_lines(file.path, [{"kind": "odd"}, *ALL])
    Sender("wandb", run, file.lines_after).send(everything=True)
    assert memory.told == {0: expected(0), 7: expected(7)}
