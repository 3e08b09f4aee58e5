"""Being asked to stop: SIGTERM (Slurm, Kubernetes, torchrun), SIGHUP (a terminal that is gone) and Ctrl-C.

A command ends at once, by an exception that lets its files be cleaned up; training and following a training remember
the signal and end after the step at hand. A worker ends with the torchrun that started it.
"""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from nfdist import files
from nfdist.log import notice

STARTED = "NFDIST_STARTED"  # in the environment of what a command of nfdist has started, which tells of a stop itself
STOPPING = (signal.SIGTERM, signal.SIGHUP)
HEEDED = (*STOPPING, signal.SIGINT)
_SECONDS_TO_HEAR = 5.0  # for the main thread, which hears of signals only between two operations
_SECONDS_TO_CLEAN_UP = 60.0
_SECONDS_BETWEEN_LOOKS_AT_LAUNCHER = 0.5


class Stopped(BaseException):
    """What a signal raises in the main thread; no `except Exception` on its way catches it."""

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        super().__init__(self.signal.name)


def exit_code(stopped: signal.Signals) -> int:
    """The exit code of a command that a signal has stopped, as shells count them."""
    return 128 + stopped


def tell_of_stop(text: str) -> None:
    """One line about a stop, of the one process of a job that tells of it."""
    if os.environ.get("RANK", "0") == "0" and STARTED not in os.environ:
        notice(text)


class Interruptible:
    """For the length of a block the signals raise `Stopped`, Ctrl-C KeyboardInterrupt, in the main thread.

    A thread sees to it that the process ends even where the main thread hears nothing, as in a collective, and when the
    process `launcher` is gone that started this one.
    """

    def __init__(self, launcher: int | None = None) -> None:
        self._launcher = launcher
        self._before: dict[signal.Signals, Any] = {}
        self._received: signal.Signals | None = None
        self._ended = threading.Event()

    def __enter__(self) -> "Interruptible":
        if threading.current_thread() is not threading.main_thread():
            return self  # where no signal arrives
        reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._wakeup_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in HEEDED:
            if signal.getsignal(number) != signal.SIG_IGN:  # as nohup asks for
                self._before[number] = signal.signal(number, self._raise)
        self._thread = threading.Thread(target=self._watch, args=(reader,), name="nfdist signals", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._ended.set()
        if not hasattr(self, "_thread"):
            return
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._raise:
                signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._writer)
        self._thread.join()

    def heed(self) -> None:
        """The command ends: further signals mean nothing more."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def check(self) -> None:
        """Raise what something in between has swallowed, or turned into an error of its own."""
        if self._received is not None:
            raise Stopped(self._received)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        first, self._received = self._received is None, self._received or signal.Signals(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        if first:  # a second one must not disturb the cleaning up after the first
            raise Stopped(number)

    def _watch(self, reader: int) -> None:
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        pause = None if self._launcher is None else 1000 * _SECONDS_BETWEEN_LOOKS_AT_LAUNCHER
        while not self._ended.is_set():
            numbers = os.read(reader, 64) if poll.poll(pause) else None
            if numbers == b"":
                break  # the block has ended
            if self._launcher is not None and os.getppid() != self._launcher:
                _end_now(f"torchrun (process {self._launcher}) is gone: its workers end; continue with --resume", 2)
            for number in set(numbers or b"") & set(STOPPING):
                if signal.getsignal(number) == self._raise:
                    self._insist(signal.Signals(number))
        os.close(reader)

    def _insist(self, number: signal.Signals) -> None:
        """End the process if the main thread does not."""
        if not self._waits(_SECONDS_TO_HEAR, lambda: self._received is not None):
            _end_now(f"{number.name}: stopped", exit_code(number))
        if not self._waits(_SECONDS_TO_CLEAN_UP, lambda: False):
            _end_now(f"{number.name}: stopped", exit_code(number))

    def _waits(self, seconds: float, happens: Any) -> bool:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            if self._ended.wait(0.05) or happens():
                return True
        return False


class StopRequest:
    """Remembers a signal instead of dying of it; a second Ctrl-C interrupts as usual."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is not threading.main_thread():
            return self  # where no signal arrives
        for number in HEEDED:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def heed(self) -> None:
        """All ranks stop now: a signal that comes later, another rank having had its own first, means nothing more."""
        for number in STOPPING:
            self._before[number] = signal.SIG_IGN

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received == signal.SIGINT == number:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Signals wait until the block has ended, which must be short; a second Ctrl-C does not."""
    with StopRequest() as stop:
        yield
    if stop.received is not None:
        signal.raise_signal(stop.received)


def _end_now(text: str, code: int) -> None:
    """End the process from another thread than the one that works."""
    files.abandon()
    if os.environ.get("RANK", "0") == "0":
        with contextlib.suppress(Exception):
            notice(text)
    os._exit(code)
