"""Several processes of this host that make trials of one study."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from nfdist import log
from nfdist.signals import Stopped


def run_workers(count: int, arguments: Sequence[str]) -> list[int]:
    """Run `nfdist` with these arguments in so many processes, the cores divided among them; their exit codes.

    A signal is passed on to all of them, and raised when they have ended. Each ends when this process is gone.
    """
    threads = max(1, len(os.sched_getaffinity(0)) // count)
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ}
    command = [sys.executable, "-m", "nfdist", *arguments]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            # In a session of its own, so that a Ctrl-C reaches it once, from here; stdin tells it of our end.
            processes.append(
                subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
        return [_waited(process, number) for number, process in enumerate(processes)]
    except (Stopped, KeyboardInterrupt) as stop:
        for process in processes:
            process.send_signal(stop.signal if isinstance(stop, Stopped) else signal.SIGINT)
        for process in processes:
            process.wait()
        raise
    finally:
        for process in processes:
            if process.stdin is not None:
                process.stdin.close()


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
