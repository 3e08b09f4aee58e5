"""One process at a time owns a run directory, whatever happened to the one before."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nfdist.config import Config
from nfdist.errors import CheckpointError
from nfdist.runs import ownership
from nfdist.runs.ownership import Owner, owning, owning_directory
from nfdist.runs.run import Run

OWNING_PROGRAM = """
import sys, time
from pathlib import Path
from nfdist.runs.ownership import owning
with owning(Path(sys.argv[1]), "trained", sys.argv[2]):
    print("owned", flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """All in a fraction of the time."""
    monkeypatch.setattr(ownership, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(ownership, "CERTAIN_SECONDS", 0.3)
    monkeypatch.setattr(ownership, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(ownership, "_UNREADABLE_SECONDS", 0.05)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "train.lock"


@contextmanager
def other_process(lock: Path, launch: str = "") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", OWNING_PROGRAM, str(lock), launch]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "owned\n"
            yield process
        finally:
            process.kill()


def write_owner(lock: Path, owner: Owner) -> None:
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)  # which empties it at no moment, as an owner does not
    ownership._write(descriptor, owner)
    os.close(descriptor)


def elsewhere(launch: str = "") -> Owner:
    return replace(Owner.this_process(launch), machine="another", host="far", process=77)


def test_an_owner_that_lives_is_named_and_one_that_was_killed_is_followed_at_once(lock: Path) -> None:
    with other_process(lock) as process:
        with pytest.raises(CheckpointError) as caught, owning(lock, "trained"):
            pass
        expected = rf"{lock.parent} is being trained by process {process.pid} on \S+ since \S+ .*: wait for it, or stop"
        assert caught.match(expected)
        assert caught.match(rf"kill {process.pid}$")
        process.send_signal(signal.SIGSTOP)  # one that sleeps has not ended
        with pytest.raises(CheckpointError, match="is being trained"), owning(lock, "trained"):
            pass
        process.kill()
        process.wait(60)
        with owning(lock, "trained"):
            assert Owner.this_process("").process == os.getpid()
    assert not lock.exists()


def test_nobody_owns_what_was_released_and_no_two_threads_own_it(lock: Path) -> None:
    for _ in range(2):
        with owning(lock, "trained"):
            with pytest.raises(CheckpointError, match=f"by process {os.getpid()} "), owning(lock, "trained"):
                pass
            with owning(lock.with_name("evaluate.lock"), "evaluated"):  # another output
                pass
            assert lock.exists()
    assert list(lock.parent.iterdir()) == []


def test_a_restart_by_the_same_launcher_waits_for_its_predecessor(
    lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with other_process(lock, "torchrun-1") as process:
        threading.Timer(0.3, process.kill).start()
        with owning(lock, "trained", "torchrun-1"):
            assert process.wait(60) == -signal.SIGKILL
    assert f"waiting until it is certain that process {process.pid} on" in capsys.readouterr().err


def test_a_worker_whose_launcher_is_gone_is_waited_for(lock: Path) -> None:
    owner = replace(Owner.this_process("torchrun-1"), launcher=(os.getpid(), "long ago"))
    write_owner(lock, owner)
    with lock.open("rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        threading.Timer(0.2, lambda: fcntl.flock(held, fcntl.LOCK_UN)).start()
        with owning(lock, "trained", "torchrun-2"):
            pass


def test_an_owner_elsewhere_lives_as_long_as_it_counts(
    lock: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locks of another machine may not be seen here, so the file is not locked."""
    owner, ended = elsewhere(), threading.Event()

    def count() -> None:
        beat = 0
        while not ended.wait(0.02):
            write_owner(lock, replace(owner, beat=(beat := beat + 1)))

    monkeypatch.setattr(ownership, "CERTAIN_SECONDS", 60)
    write_owner(lock, owner)
    counting = threading.Thread(target=count)
    counting.start()
    try:
        with pytest.raises(CheckpointError, match="is being trained by process 77 on far"), owning(lock, "trained"):
            pass
    finally:
        ended.set()
        counting.join()
    monkeypatch.setattr(ownership, "CERTAIN_SECONDS", 0.3)
    began = time.monotonic()
    with owning(lock, "trained"):
        assert time.monotonic() - began > ownership.CERTAIN_SECONDS
    assert "waiting until it is certain that process 77 on far has ended" in capsys.readouterr().err


def test_a_file_system_without_locks(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(ownership._NO_LOCKS[0], "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        owning(lock, "trained"),  # its process is this one, and lives
        pytest.raises(CheckpointError, match="is being trained"),
        owning(lock, "trained"),
    ):
        pass
    write_owner(lock, replace(Owner.this_process(""), start="long ago"))
    with owning(lock, "trained"):
        pass


def test_an_owner_that_was_taken_for_dead_is_told(lock: Path) -> None:
    told: list[str] = []
    called = threading.Event()

    def lost(text: str) -> None:
        told.append(text)
        called.set()

    with owning(lock, "trained", lost=lost):
        write_owner(lock, elsewhere())
        assert called.wait(60)
    assert told == [f"{lock.parent} is being trained by another process now: this one ends"]
    assert lock.exists()  # it is the other's


def test_a_lock_that_was_removed_by_hand_is_placed_again(lock: Path) -> None:
    with owning(lock, "trained"):
        lock.unlink()
        while not lock.exists() or lock.stat().st_size == 0:
            time.sleep(0.01)
        with pytest.raises(CheckpointError, match="is being trained"), owning(lock, "trained"):
            pass
    assert not lock.exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"host": 3}', b"[" * 60_000, b"\xff\x00"])
def test_a_file_that_names_nobody_is_taken(lock: Path, content: bytes) -> None:
    lock.write_bytes(content)
    with owning(lock, "trained"):
        pass
    assert not lock.exists()


def test_of_many_at_the_same_moment_one_creates_the_run(tmp_path: Path) -> None:
    ready = threading.Barrier(8)

    def create(number: int) -> Run | CheckpointError:
        ready.wait()
        try:
            with owning_directory(tmp_path / "runs" / "one", "train", "trained"):
                return Run.create(tmp_path / "runs" / "one", Config(), str(number))
        except CheckpointError as error:
            return error

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(create, range(8)))
    (run,) = [outcome for outcome in outcomes if isinstance(outcome, Run)]
    assert Run.open(tmp_path / "runs" / "one") == run
    assert {path.name for path in run.path.iterdir()} == {"config.toml", "run.json"}


def test_a_directory_in_which_nothing_came_about_is_removed(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError), owning_directory(tmp_path / "a" / "b", "train", "trained"):
        raise CheckpointError("no")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match="file is a file"), owning_directory(tmp_path / "file", "x", "y"):
        pass
    with pytest.raises(CheckpointError, match="cannot be written"), owning_directory(tmp_path / "file/b", "x", "y"):
        pass


@pytest.mark.parametrize("name", ["_write", "_read"])
def test_a_signal_while_it_is_acquired_or_given_back_leaves_no_file(
    name: str, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each call of a part of it in turn, as if Ctrl-C had come then."""
    original, calls, strike = getattr(ownership, name), 0, 0

    def struck(*words: Any) -> Any:
        nonlocal calls
        done = original(*words)
        if threading.current_thread() is threading.main_thread():
            calls += 1
            if calls == strike:
                signal.raise_signal(signal.SIGINT)
        return done

    monkeypatch.setattr(ownership, name, struck)
    interrupted = True
    while interrupted:
        strike, calls, interrupted = strike + 1, 0, False
        try:
            with owning(lock, "trained"):
                assert lock.exists()
        except KeyboardInterrupt:
            interrupted = True
        assert not lock.exists()
    assert strike > 1


def test_a_refused_owner_leaves_the_file_of_the_one_that_has_it(lock: Path) -> None:
    """Even if both are of one process, and of the same second."""
    with owning(lock, "trained"):
        with pytest.raises(CheckpointError, match="is being trained by process"), owning(lock, "trained"):
            pass
        assert lock.exists()
    assert not lock.exists()
