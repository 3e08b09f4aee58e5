"""Ranks stop together, and a signal that reaches one of them only then ends it no differently."""

import signal
import sys
from pathlib import Path

import pytest

from nfdist.settings import dump
from nfdist.train.signals import StopRequest
from nfdist.world import World
from tests.train.building import build_partition, config_of, run_training
from tests.train.launching import started, steps_made, write_config

# Once the command takes no more notice of signals, there is one more.
LATE_PROGRAM = """
import signal
from nfdist.cli.main import entry
from nfdist.train.signals import StopRequest

def leave(request, *error, leave=StopRequest.__exit__):
    leave(request, *error)
    signal.raise_signal(signal.SIGTERM)

StopRequest.__exit__ = leave
entry()
"""
LATE = [sys.executable, "-c", LATE_PROGRAM]


def test_handlers_are_as_before_unless_all_ranks_stop() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
    assert stop.received == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before
    try:
        with StopRequest() as stop:
            stop.heed()
        signal.raise_signal(signal.SIGTERM)
        assert stop.received is None
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.timeout(200)
def test_a_training_that_was_stopped_ignores_a_late_signal(tmp_path: Path) -> None:
    config = write_config(tmp_path / "small.toml", build_partition(tmp_path / "partition"), "train.epochs=100000")
    with started([*LATE, "train", str(config), f"run.dir={tmp_path}/run"], tmp_path / "log") as job:
        job.wait_until(lambda: steps_made(tmp_path / "run") > 0)
        job.process.terminate()
        assert job.wait() == 143
    assert "SIGTERM: stopped at step" in job.output


@pytest.mark.timeout(200)
def test_following_that_was_stopped_ignores_a_late_signal(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run_training(World(), dump(config_of(build_partition(tmp_path / "partition"), run)))
    with started([*LATE, "evaluate", str(run), "--follow", "--poll-seconds", "600"], tmp_path / "log") as job:
        job.wait_until(lambda: (run / "evaluations.jsonl").exists())
        job.process.terminate()
        assert job.wait() == 143
    assert "1 checkpoint evaluated" in job.output
