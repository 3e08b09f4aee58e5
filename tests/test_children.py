"""Processes that a command starts end with it, whatever ends it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from nfdist.children import Children
from nfdist.signals import STARTED, Stopped, tell_of_stop

SLEEP = [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('begun', flush=True); time.sleep(600)",
]


@pytest.fixture(autouse=True)
def hangups_are_heeded() -> Iterator[None]:
    """Children inherit it where this process ignores them, as under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def begun(children: Children, command: list[str]) -> "subprocess.Popen[str]":
    process = children.start(command, os.environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize(
    ("error", "number"),
    [(Stopped(signal.SIGTERM), signal.SIGTERM), (Stopped(signal.SIGHUP), signal.SIGHUP), (OSError(), signal.SIGTERM)],
)
def test_what_leaves_the_block_ends_them_all(error: BaseException, number: signal.Signals) -> None:
    processes: list[subprocess.Popen[str]] = []

    def work() -> None:
        with Children() as children:
            processes.extend(begun(children, SLEEP) for _ in range(2))
            raise error

    with pytest.raises(type(error)):
        work()
    assert [process.returncode for process in processes] == [-number] * 2


def test_a_second_stop_ends_what_does_not_heed_the_first() -> None:
    def second(number: int, frame: object) -> None:
        raise Stopped(signal.SIGTERM)

    processes = []

    def work() -> None:
        with Children() as children:
            processes.append(begun(children, STUBBORN))
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, second)
    try:
        with pytest.raises(Stopped):
            work()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert processes[0].returncode == -signal.SIGKILL


def test_a_signal_while_one_is_started_ends_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Interrupted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *words: object, **options: object) -> None:
            super().__init__(*words, **options)  # type: ignore[call-overload]
            made.append(self)
            signal.raise_signal(signal.SIGINT)  # after the fork, before anybody holds it

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt), Children() as children:
        children.start(SLEEP, os.environ)
    assert [process.returncode for process in made] == [-signal.SIGINT]


def test_only_the_one_that_was_not_started_by_another_tells_of_a_stop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Children() as children:
        command = [sys.executable, "-c", f"import os; print('{STARTED}' in os.environ)"]
        process = children.start(command, os.environ, stdout=subprocess.PIPE, text=True)
        assert process.communicate()[0] == "True\n"
    tell_of_stop("stopped")
    monkeypatch.setenv(STARTED, "1")
    tell_of_stop("stopped too")
    assert capsys.readouterr().err == "nfdist: stopped\n"
