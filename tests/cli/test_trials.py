"""What is tried is reported whatever becomes of it, and no process is left."""

import os
import sys
import time
from pathlib import Path

import pytest

from nfdist.cli.trials import Trial, check_trials, started_trials
from tests.cli.findings import only


def process(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", text]


def outcome(*texts: str, load: float = 20.0, work: float = 20.0) -> str:
    trial = Trial("gloo", [process(text) for text in texts], seconds_to_load=load, seconds_to_try=work)
    trial.start()
    problem = only(check_trials([trial]), "broken")
    assert all(one.poll() is not None for one in trial._processes)
    assert "several workers on CPUs" in problem.problem
    assert "GLOO_SOCKET_IFNAME" in problem.remedy
    return problem.problem


def test_what_hangs_is_killed() -> None:
    hangs = "print('ready', flush=True); import time; time.sleep(1000)"
    started = time.monotonic()
    assert "no answer within 0.3 s" in outcome(hangs, hangs, work=0.3)
    assert "its libraries were not loaded within 0.3 s" in outcome(hangs, "import time; time.sleep(1000)", load=0.3)
    assert time.monotonic() - started < 100  # and not the thousand seconds of the sleep


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise SystemExit('no such library')", "no such library"),
        ("import os; os.kill(os.getpid(), 11)", "a process ended with code -11"),
        ("raise RuntimeError('a reason')", "RuntimeError: a reason"),
    ],
)
def test_what_dies_is_told(text: str, said: str) -> None:
    assert said in outcome("print('ready'); print('{}')", text)


def test_nothing_is_left_when_the_doctor_is_stopped(tmp_path: Path) -> None:
    processes: list[int] = []

    def stopped() -> None:
        with started_trials(tmp_path, 0) as trials:
            processes.extend(one.pid for trial in trials for one in trial._processes)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert len(processes) == 3
    for number in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)
