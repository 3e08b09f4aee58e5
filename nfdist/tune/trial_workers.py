"""Several processes of this host that make trials of one study."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from nfdist import log
from nfdist.children import Children


def run_workers(count: int, arguments: Sequence[str]) -> list[int]:
    """Run `nfdist` with these arguments in so many processes, the cores divided among them; their exit codes.

    A signal is passed on to all of them, and raised when they have ended. Each ends when this process is gone.
    """
    threads = max(1, len(os.sched_getaffinity(0)) // count)
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ}
    command = [sys.executable, "-m", "nfdist", *arguments]
    with Children() as children:
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}  # stdin tells of our end
        processes = [children.start(command, environment, **streams) for _ in range(count)]
        return [_waited(process, number) for number, process in enumerate(processes)]


def _waited(process: subprocess.Popen[bytes], number: int) -> int:
    code = process.wait()
    if code:
        log.warn(f"worker {number} ended with exit code {code}")
    return code


def end_with_starter() -> None:
    """Ask this process to stop, as SIGTERM does, when whoever started it is gone and with it the other end of stdin."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="nfdist starter", daemon=True).start()
