"""A feed runs beside a training, and neither its failures nor its slowness are the training's."""

import threading
import time
from pathlib import Path

import pytest

from nfdist.observe.trackers.feed import Feed, Feeds
from nfdist.observe.trackers.tracker import DOORS, TrackedRun
from nfdist.runs.metrics_file import MetricsFile
from tests.observe.trackers.remembering import Memory, kinds_and_steps, lines_of, tracked_run

RESULT = {"per_seed": [{"seed": 0, "best": {"valid": 0.5}}]}


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    memory = Memory(knows=True)
    monkeypatch.setitem(DOORS, "wandb", memory)
    return memory


@pytest.fixture
def file(tmp_path: Path) -> MetricsFile:
    return MetricsFile(tmp_path / "metrics.jsonl")


def test_lines_arrive_beside_the_training_and_the_result_at_its_end(
    memory: Memory, file: MetricsFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, later = lines_of(0, range(1, 5)), lines_of(0, range(5, 9))
    for line in first:
        file.append(line)
    feeds = Feeds(("wandb",), tracked_run(tmp_path / "run"), file.lines_after)
    while memory.told.get(0) != kinds_and_steps(first):
        time.sleep(0.01)
    for line in later:
        file.append(line)
    feeds.close(RESULT)
    feeds.close()  # as the end of a block does
    assert memory.told == {0: kinds_and_steps([*first, *later])}
    assert memory.results == {0: [{"best/valid": 0.5}]}
    assert memory.closed == [True]
    assert capsys.readouterr().err == ""
    assert not [thread for thread in threading.enumerate() if thread.name == "nfdist wandb"]


def test_a_training_that_was_stopped_is_not_finished_in_the_tracker(
    memory: Memory, file: MetricsFile, tmp_path: Path
) -> None:
    file.append(lines_of(0, range(1, 2))[0])
    Feeds(("wandb",), tracked_run(tmp_path / "run"), file.lines_after).close()
    assert memory.told == {0: [("step", 1)]}
    assert (memory.results, memory.closed) == ({}, [False])


def test_a_failure_is_told_once_and_mended(
    memory: Memory, file: MetricsFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in lines_of(0, range(1, 5)):
        file.append(line)
    memory.fails = 1
    feed = Feed("wandb", tracked_run(tmp_path / "run"), file.lines_after)
    while not memory.closed:
        time.sleep(0.01)
    feed.close(RESULT)
    assert memory.told == {0: kinds_and_steps(lines_of(0, range(1, 5)))}
    warning = "nfdist: warning: wandb was not updated, the training goes on: the server is gone\n"
    assert capsys.readouterr().err == warning


def test_what_is_missing_at_the_end_is_told(
    memory: Memory, file: MetricsFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.append(lines_of(0, range(1, 2))[0])
    memory.fails, memory.knows = 100, False
    run = tracked_run(tmp_path / "run")
    Feed("wandb", run, file.lines_after).close(RESULT)
    first, last = capsys.readouterr().err.splitlines()
    assert "was not updated" in first
    assert last == (
        f"nfdist: warning: wandb lacks the last of {run.path}, whose metrics.jsonl has all (the server is gone); "
        "nfdist train --resume sends the rest"
    )


def test_a_tracker_that_hangs_holds_up_nobody(
    file: MetricsFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    release = threading.Event()

    class Hanging(Memory):
        def open(self, run: TrackedRun) -> None:  # type: ignore[override]
            release.wait()

    monkeypatch.setitem(DOORS, "wandb", Hanging())
    feed = Feed("wandb", tracked_run(tmp_path / "run"), file.lines_after)
    feed.close(RESULT, seconds=0.05)
    assert "(it is slow); nfdist train --resume sends the rest" in capsys.readouterr().err
    release.set()
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "nfdist wandb"]
    thread.join(10)
