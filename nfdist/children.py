"""Processes that a command starts, and that end before it does, whatever ends it."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from signal import SIGINT, SIGTERM
from types import TracebackType
from typing import Any

from nfdist.signals import STARTED, Stopped, deferred


class Children:
    """The processes of a block: a signal that leaves it is passed on to them, and they are waited for.

    Each is in a session of its own, so that a Ctrl-C on a terminal reaches it once, from here, and leaves it to this
    process to tell of the stop. A second one ends them at once.
    """

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[Any]] = []

    def start(self, command: Sequence[str], environment: Mapping[str, str], **options: Any) -> subprocess.Popen[Any]:
        """Start a process; a signal that comes meanwhile waits until it is one of those to be ended."""
        with deferred():
            process = subprocess.Popen(
                command, env={**environment, STARTED: str(os.getpid())}, start_new_session=True, **options
            )
            self._processes.append(process)
        return process

    def __enter__(self) -> "Children":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        number = error.signal if isinstance(error, Stopped) else SIGINT if kind is KeyboardInterrupt else SIGTERM
        try:
            if kind is not None:
                for process in self._processes:
                    process.send_signal(number)
            self._wait()
        except (Stopped, KeyboardInterrupt):
            for process in self._processes:
                process.kill()
            self._wait()
            raise
        finally:
            for process in self._processes:
                for stream in (process.stdin, process.stdout):
                    if stream is not None:
                        stream.close()

    def _wait(self) -> None:
        for process in self._processes:
            if process.stdout is not None and not process.stdout.closed:  # or it might wait for somebody to read
                process.stdout.read()
            process.wait()
