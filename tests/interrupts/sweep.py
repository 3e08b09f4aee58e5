"""Interrupt a command at a moment, as Ctrl-C does, and tell what it did wrong."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.faults.rule import left_aside
from tests.interrupts.commands import INTERRUPTED, Material

MARK = "NFDIST_SWEEP"  # in the environment of all that a command starts
SECONDS = 400  # on a machine with other things to do
OURS = re.compile(r"^nfdist: (interrupted: |SIGINT: )", re.MULTILINE)
WORDS = "nfdist: "
ROOT = Path(__file__).parents[2]
PACKAGE = f"{ROOT}/nfdist/"


@dataclass(frozen=True)
class Outcome:
    code: int
    seconds: float
    stdout: str
    stderr: str
    problems: tuple[str, ...]


def interrupt(name: str, material: Material, folder: Path, after: float | None, *, group: bool = False) -> Outcome:
    """Run a command in a new folder and send SIGINT after some seconds: to it, or to its group as a terminal does."""
    folder.mkdir(parents=True)
    case, token = INTERRUPTED[name], str(folder)
    case.prepare(material, folder)
    with (folder.with_suffix(".out")).open("wb") as out, (folder.with_suffix(".err")).open("wb") as err:
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "nfdist", *case.words(material)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), MARK: token},
            process_group=0 if sys.version_info >= (3, 11) else None,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
        )
        if after is not None:
            try:
                process.wait(after)
            except subprocess.TimeoutExpired:
                (os.killpg if group else os.kill)(process.pid, signal.SIGINT)
        late = False
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            late = True
        seconds = time.monotonic() - began
    left = _end_all(token)
    stdout, stderr = (folder.with_suffix(end).read_text(errors="replace") for end in (".out", ".err"))
    problems = [f"process left: {one}" for one in left]
    problems += [f"still running {SECONDS} s later"] if late else _said_wrong(process.returncode, stderr, after)
    problems += [problem.text for problem in left_aside(folder)] + case.problems(folder)
    shutil.rmtree(folder)
    return Outcome(process.returncode, seconds, stdout, stderr, tuple(problems))


def _said_wrong(code: int, stderr: str, after: float | None) -> list[str]:
    """What is wrong with the exit code and the words of a command."""
    if PACKAGE not in stderr and code in (-signal.SIGINT, 1, 130) and "KeyboardInterrupt" in stderr:
        return []  # the interpreter itself had not begun with nfdist
    if code == -signal.SIGINT and not stderr:
        return []  # nor had it a handler
    wanted = (0,) if after is None else (0, 130)
    problems = [] if code in wanted else [f"exit code {code}: {stderr[-300:]!r}"]
    if "Traceback" in stderr:
        problems.append(f"a traceback: {stderr[-400:]!r}")
    told = len(OURS.findall(stderr))
    if code == 130 and told != 1:
        problems.append(f"{told} lines about the stop: {stderr[-400:]!r}")
    foreign = [line for line in stderr.splitlines() if not line.startswith(WORDS)]
    if foreign and "Traceback" not in stderr:
        problems.append(f"a line that is not of nfdist: {foreign[0]!r}")
    return problems


def _end_all(token: str) -> list[str]:
    """What a command has started and left, which is ended."""
    left = _family(token)
    if left:
        time.sleep(1.0)  # a process that is on its way out
        left = [one for one in left if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    found = []
    for one in left:
        try:
            found.append(" ".join(one.cmdline())[:200])
            one.kill()
        except psutil.Error:
            continue
    return found


def _family(token: str) -> list[psutil.Process]:
    found = []
    for one in psutil.process_iter():
        try:
            if one.environ().get(MARK) == token:
                found.append(one)
        except psutil.Error:
            continue
    return found
