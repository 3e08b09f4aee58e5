"""Whether libraries work together, by doing it: processes that are given some seconds, and killed after that."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from nfdist.cli.check import Check

SECONDS_TO_LOAD = 120.0  # of libraries, on a busy host or from a slow disk
SECONDS_TO_TRY = 12.0
TRIAL = (sys.executable, "-m", "nfdist.cli.trial_process")

# What does not work without it, and the next move.
PURPOSES = {
    "gloo": (
        "several workers on CPUs",
        "see that the name of this host is that of an address of its own (/etc/hosts), or export "
        "GLOO_SOCKET_IFNAME=lo for workers of one host",
    ),
    "nccl": (
        "several workers on GPUs",
        "export NCCL_DEBUG=INFO and try again to see why, or train with run.device=cpu",
    ),
    "dgl": ("--method metis and model.name = gat", "install the versions of constraints.txt, or use --method random"),
}


@dataclass
class Trial:
    """Processes that try one thing together."""

    name: str
    commands: Sequence[Sequence[str]]
    seconds_to_load: float = SECONDS_TO_LOAD
    seconds_to_try: float = SECONDS_TO_TRY
    _processes: list[subprocess.Popen[str]] = field(default_factory=list)
    _outputs: list[list[str]] = field(default_factory=list)
    _readers: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        self._started = time.monotonic()
        for command in self.commands:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            self._processes.append(process)
            for stream in (process.stdout, process.stderr):
                lines: list[str] = []
                assert stream is not None
                reader = threading.Thread(target=_read_all, args=(stream, lines), daemon=True)
                reader.start()
                self._outputs.append(lines)
                self._readers.append(reader)

    def outcome(self) -> tuple[dict[str, Any] | None, str | None]:
        """What the first process has found, or why one of them did not; no process is left when this returns."""
        try:
            hung = self._wait()
            codes = [process.poll() for process in self._processes]  # before those that wait for another are killed
        finally:
            self.end()
        for reader in self._readers:
            reader.join(1.0)
        if hung is not None:
            return None, hung
        for code, errors in zip(codes, self._outputs[1::2], strict=True):
            if code not in (None, 0):
                died = f"a process ended with code {code}"
                return None, " ".join((errors[-1] if errors else died).split())[:300]
        return json.loads(self._outputs[0][-1]), None

    def end(self) -> None:
        """Let no process go on."""
        for process in self._processes:
            process.kill()
            process.wait()

    def _wait(self) -> str | None:
        """Wait for the end of all processes, or of one that failed; what to tell of some that do not end."""
        ready_since: float | None = None
        while True:
            codes = [process.poll() for process in self._processes]
            if all(code is not None for code in codes) or any(code not in (None, 0) for code in codes):
                return None
            now = time.monotonic()
            if ready_since is None and all(lines[:1] for lines in self._outputs[::2]):
                ready_since = now
            if ready_since is not None and now > ready_since + self.seconds_to_try:
                return f"no answer within {self.seconds_to_try:g} s"
            if ready_since is None and now > self._started + self.seconds_to_load:
                return f"its libraries were not loaded within {self.seconds_to_load:g} s"
            time.sleep(0.02)


@contextmanager
def started_trials(folder: Path, num_gpus: int) -> Iterator[list[Trial]]:
    """All that can be tried here, begun at once; processes meet in the folder, and none outlives the block."""
    trials = [_collective("gloo", folder, 2), Trial("dgl", [[*TRIAL, "dgl"]])]
    if num_gpus:
        trials.append(_collective("nccl", folder, min(2, num_gpus)))
    try:
        for trial in trials:
            trial.start()
        yield trials
    finally:
        for trial in trials:
            trial.end()


def _collective(backend: str, folder: Path, size: int) -> Trial:
    meeting = Path(tempfile.mkdtemp(prefix=backend, dir=folder))
    return Trial(backend, [[*TRIAL, backend, str(meeting), str(rank), str(size)] for rank in range(size)])


def check_trials(trials: Sequence[Trial]) -> Check:
    """What came of them."""
    check = Check("trials")
    for trial in trials:
        facts, reason = trial.outcome()
        purpose, remedy = PURPOSES[trial.name]
        if facts is None:
            check.facts[trial.name] = "failed"
            check.broken(f"{trial.name} was tried and fails ({reason}), which rules out {purpose}", remedy)
        elif trial.name == "dgl":
            through = f"a ring in two parts through {facts['metis']}, {facts['seconds']:.2f} s"
            check.facts["metis"] = through if facts["metis"] else None
        else:
            check.facts[trial.name] = f"a sum of {facts['processes']} processes, {facts['seconds']:.2f} s"
    return check


def _read_all(stream: IO[str], lines: list[str]) -> None:
    with stream:
        lines.extend(line for line in stream if line.strip())
