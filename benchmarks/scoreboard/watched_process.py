"""A process with a time limit and a memory limit, and what it took: seconds, memory of all its children, disk."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

sys.path.append(str(Path(__file__).parents[1]))
from whole_graph import field_bytes, read

SECONDS_BETWEEN_LOOKS = 0.05
SECONDS_TO_END = 30.0  # after SIGTERM, until SIGKILL


@dataclass(frozen=True)
class Taken:
    """What a process and its children took; `disk_peak_bytes` is by how much the disk's free space fell meanwhile.

    Memory is sampled and added up over the processes: `private_bytes` anonymous and shared memory, `resident_bytes`
    mapped files as well.
    """

    exit_code: int
    timed_out: bool
    seconds: float
    cpu_seconds: float
    private_bytes: int
    resident_bytes: int
    disk_peak_bytes: int


def run_watched(
    command: Sequence[str],
    log: Path,
    *,
    disk: Path,
    environment: Mapping[str, str],
    limit_seconds: float,
    memory_bytes: int,
) -> Taken:
    """Run a command to its end, what it prints going into LOG.out and what it says into LOG.err.

    Each of its processes may hold so much private memory: the limit is the system's, so that an allocation beyond it
    fails in the process that asked for it, and nothing else of the machine is in danger.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    started, cpu = time.perf_counter(), _cpu_seconds()
    free = least_free = _free_bytes(disk)
    private = resident = 0
    timed_out = False
    with log.with_suffix(".out").open("wb") as out, log.with_suffix(".err").open("wb") as errors:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=errors,
            env=environment,
            start_new_session=True,  # so that Ctrl-C reaches it through `_end` alone
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes)),
        )
        try:
            while process.poll() is None:
                time.sleep(SECONDS_BETWEEN_LOOKS)
                now_private, now_resident = _tree_bytes(process.pid)
                private, resident = max(private, now_private), max(resident, now_resident)
                least_free = min(least_free, _free_bytes(disk))
                if time.perf_counter() - started > limit_seconds:
                    timed_out = True
                    _end(process)
        finally:
            _end(process)
    seconds = time.perf_counter() - started
    spent = _cpu_seconds() - cpu
    return Taken(process.returncode, timed_out, seconds, spent, private, resident, free - least_free)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM to its session, then SIGKILL, unless it is over."""
    if process.poll() is not None:
        return
    for number, patience in ((signal.SIGTERM, SECONDS_TO_END), (signal.SIGKILL, SECONDS_TO_END)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            return


def _tree_bytes(pid: int) -> tuple[int, int]:
    """Private and resident bytes of a process and of all below it."""
    with suppress(psutil.NoSuchProcess):
        pids = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
        said = [read(Path(f"/proc/{one}/status")) for one in pids]
        private = sum(field_bytes(status, "RssAnon") + field_bytes(status, "RssShmem") for status in said)
        return private, sum(field_bytes(status, "VmRSS") for status in said)
    return 0, 0


def _cpu_seconds() -> float:
    """Of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
