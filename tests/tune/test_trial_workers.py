"""Workers end with whoever started them, and several of them make the trials of one study."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nfdist.tune.trial_workers import run_workers
from tests.tune.building import SEARCH, SETTINGS, facts_of


def test_exit_codes_are_those_of_the_workers(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_workers(2, ["--version"]) == [0, 0]
    assert run_workers(1, ["nonsense"]) == [2]
    assert "worker 0 ended with exit code 2" in capfd.readouterr().err


def test_a_worker_ends_when_its_starter_is_gone() -> None:
    code = (
        "import time; from nfdist.tune.trial_workers import end_with_starter as watch; watch(); print(1, flush=True); "
    )
    code += "time.sleep(60)"
    worker = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert worker.stdin is not None
    assert worker.stdout is not None
    with worker:
        assert worker.stdout.readline() == b"1\n"
        assert worker.poll() is None
        worker.stdin.close()
        assert worker.wait(20) == -signal.SIGTERM


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_study_of_two_workers_goes_on_after_any_end(number: signal.Signals, graph: Path, tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two workers need two cores")
    config = tmp_path / "small.toml"
    text = "".join(
        f"{section}.{key} = {str(value).lower()}\n" for section, keys in SETTINGS.items() for key, value in keys.items()
    )
    search = (
        'search."train.learning_rate" = { low = 1e-3, high = 0.1, log = true }\nsearch."model.dropout" = [0.0, 0.3]\n'
    )
    config.write_text(f'data.partition = "{graph}"\n{text}{search}')
    command = [sys.executable, "-m", "nfdist", "tune", str(config), "--out", str(tmp_path / "out"), "--workers", "2"]
    command += ["--trials", "12", "train.epochs=200"]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    assert first.stderr is not None
    with first:
        for line in first.stderr:
            if b" 3 of 12" in line:
                break
        os.kill(first.pid, number)
        first.stderr.read()
        assert first.wait(60) == (128 + number if number != signal.SIGKILL else -number)
    time.sleep(0.5)
    before = len(facts_of(tmp_path / "out"))
    assert 3 <= before < 12
    subprocess.run(command, check=True, timeout=200)
    found = facts_of(tmp_path / "out")
    assert len(found) == 12
    assert {tuple(values) for _, values, _, _ in found} == {tuple(SEARCH)}
