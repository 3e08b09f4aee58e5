"""Ranks stop together, and a signal that reaches one of them only then ends it no differently."""

import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from nfdist import files
from nfdist.cli.main import main
from nfdist.errors import PartitionError
from nfdist.settings import dump
from nfdist.signals import HEEDED, StopRequest
from nfdist.world import World
from tests.training.building import build_partition, config_of, run_training
from tests.training.launching import alone, started, steps_made, write_config

# Once the command takes no more notice of signals, there is one more.
LATE_PROGRAM = """
import signal
from nfdist.cli.main import entry
from nfdist.signals import StopRequest

def leave(request, *error, leave=StopRequest.__exit__):
    leave(request, *error)
    signal.raise_signal(signal.SIGTERM)

StopRequest.__exit__ = leave
entry()
"""
# The main thread locks a lock of the C library twice, and so waits for ever where it hears of no signal.
DEAF_PROGRAM = """
import ctypes, os, pathlib, signal, sys, threading, types
from nfdist import files
from nfdist.cli.main import entry
from nfdist import signals

def run(options):
    (files._aside(pathlib.Path(folder) / "table")).write_text("half")
    mutex, lock = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    lock(mutex)
    lock(mutex)

folder = sys.argv[1]
signals._SECONDS_TO_HEAR = 0.2
demo = types.ModuleType("nfdist.cli.demo")
demo.add_arguments, demo.run = (lambda parser: None), run
sys.modules["nfdist.cli.demo"] = demo
sys.argv = ["nfdist", "demo"]
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


@pytest.fixture
def demo_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], Any]], int]]:
    """main with a command that does as told; the signals are afterwards as before."""
    before = {number: signal.getsignal(number) for number in HEEDED}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever started the tests may ignore it

    def call(work: Callable[[], Any]) -> int:
        module = types.ModuleType("nfdist.cli.demo")
        vars(module).update(add_arguments=lambda parser: None, run=lambda options: work() or 0)
        monkeypatch.setitem(sys.modules, "nfdist.cli.demo", module)
        return main(["demo"])

    yield call
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "code", "line"),
    [
        (signal.SIGTERM, 143, "nfdist: SIGTERM: stopped; run the same command again"),
        (signal.SIGHUP, 129, "nfdist: SIGHUP: stopped; run the same command again"),
        (signal.SIGINT, 130, "nfdist: interrupted: run the same command again"),
    ],
)
def test_a_signal_ends_a_command_with_its_code_and_leaves_nothing(
    number: signal.Signals,
    code: int,
    line: str,
    demo_runs: Callable[[Callable[[], Any]], int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def work() -> None:
        with files.written_aside(tmp_path / "graph", 0, "graph", PartitionError) as aside:
            (aside / "half").write_text("a")
            with suppress(Exception):
                signal.raise_signal(number)

    assert demo_runs(work) == code
    assert capsys.readouterr().err.splitlines() == [line]
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN  # the process is about to end


def test_further_signals_do_not_disturb_the_cleaning_up(
    demo_runs: Callable[[Callable[[], Any]], int], tmp_path: Path
) -> None:
    cleaned = []

    def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGHUP)
            cleaned.append(True)

    assert demo_runs(work) == 143
    assert cleaned == [True]


def test_what_nobody_removed_is_removed_in_the_end(
    demo_runs: Callable[[Callable[[], Any]], int], tmp_path: Path
) -> None:
    """As when the signal comes between the making of a file and the block that would remove it."""

    def work() -> None:
        files._aside(tmp_path / "table").write_text("half")
        files._aside(tmp_path / "graph").mkdir()
        signal.raise_signal(signal.SIGTERM)

    assert demo_runs(work) == 143
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_an_import_swallows_still_stops_the_command(
    monkeypatch: pytest.MonkeyPatch, demo_runs: Callable[[Callable[[], Any]], int]
) -> None:
    def import_module(name: str) -> types.ModuleType:
        with suppress(BaseException):
            signal.raise_signal(signal.SIGTERM)
        return sys.modules[name]

    monkeypatch.setattr("importlib.import_module", import_module)
    assert demo_runs(lambda: pytest.fail("it was run")) == 143


def test_signals_are_as_before_and_no_thread_is_left(demo_runs: Callable[[Callable[[], Any]], int]) -> None:
    before, threads = [signal.getsignal(number) for number in HEEDED], threading.active_count()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert demo_runs(lambda: signal.raise_signal(signal.SIGHUP)) == 0  # as nohup wants it
    signal.signal(signal.SIGHUP, before[1])
    assert demo_runs(lambda: 0) == 0
    assert [signal.getsignal(number) for number in HEEDED] == before
    assert threading.active_count() == threads


def test_a_signal_that_comes_after_the_result_changes_nothing(
    demo_runs: Callable[[Callable[[], Any]], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert demo_runs(lambda: 0) == 0
    assert main(["demo"], process_ends=True) == 0
    signal.raise_signal(signal.SIGTERM)  # it would kill this process


def test_a_command_ends_even_where_its_main_thread_hears_nothing(tmp_path: Path) -> None:
    done = subprocess.Popen([sys.executable, "-c", DEAF_PROGRAM, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    _, errors = done.communicate(timeout=60)
    assert (done.returncode, errors) == (143, "nfdist: SIGTERM: stopped\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_passes_signals_on(tmp_path: Path) -> None:
    command = [*alone("demo", "--epochs", "100000", "--dir", tmp_path / "demo")]
    with started(command, tmp_path / "log") as job:
        job.wait_until(lambda: steps_made(tmp_path / "demo" / "run") > 2)
        family = psutil.Process(job.process.pid).children(recursive=True)
        job.process.terminate()
        assert job.wait() == 143
        assert psutil.wait_procs(family, 60)[1] == []
    told = [line for line in job.output.splitlines() if "SIGTERM" in line or "closing signal" in line]
    assert told == ["nfdist: SIGTERM: stopped; run the same command again"]  # one for all, and nothing of torchrun's
    assert "Traceback" not in job.output


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.3, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0])
def test_a_partition_that_is_stopped_at_any_moment_is_absent(seconds: float, tmp_path: Path) -> None:
    words = ("partition", "amazon2m-like", "--scale", "0.05", "--parts", "4", "--out", tmp_path / "out" / "graph")
    with started(alone(*words), tmp_path / "log") as job:
        time.sleep(seconds)
        job.process.terminate()
        code = job.wait()
    assert code in ((143, -15) if seconds < 1 else (143,)), job.output
    left = [path.name for path in (tmp_path / "out").iterdir()] if (tmp_path / "out").exists() else []
    assert left == []
    assert "Traceback" not in job.output


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
