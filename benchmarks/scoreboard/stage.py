"""A stage of the scoreboard: what is run, and the facts of its run, which are kept in a JSON of its own."""

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from watched_process import run_watched

from nfdist.files import checksum_of, replace_file

ROOT = Path(__file__).parents[2]
WORK = "WORK"  # what stands for the work folder in commands that are shown
DONE, FAILED, TIMED_OUT, ABSENT, SKIPPED = "done", "failed", "timed out", "absent", "not run"


@dataclass(frozen=True)
class Stage:
    """One process: `command` follows the interpreter.

    `out` is what it makes, which is removed before it starts and whose bytes are counted afterwards; once it is done,
    nobody needs what it `discards`. It `needs` other stages of its job, and is not run where one of them has come to
    nothing, or where it is `absent`, which says why.
    """

    job: str
    name: str
    command: tuple[str, ...] = ()
    limit_seconds: float = 600.0
    needs: tuple[str, ...] = ()
    out: tuple[Path, ...] = ()
    discards: tuple[Path, ...] = ()
    absent: str = ""

    def digest(self, code: str) -> str:
        """Of what is run, and by which version of the code."""
        return checksum_of(json.dumps([*self.command, self.absent, code]).encode())


@dataclass(frozen=True)
class Facts:
    """What became of a stage."""

    job: str
    stage: str
    digest: str
    state: str
    command: str
    commit: str
    began: str
    why: str = ""
    load: float = 0.0  # of the machine, when it began
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    private_bytes: int = 0
    resident_bytes: int = 0
    disk_bytes: int = 0
    disk_peak_bytes: int = 0
    outcome: Mapping[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.state == DONE

    @staticmethod
    def read(path: Path) -> "Facts | None":
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError):
            return None
        known = {one.name for one in fields(Facts)}
        return Facts(**{name: value for name, value in content.items() if name in known})


@dataclass(frozen=True)
class Workshop:
    """Where stages are run: their folder, the memory that a process may hold, and which code it is."""

    work: Path
    memory_bytes: int
    commit: str
    code: str
    environment: Mapping[str, str]

    def path(self, stage: Stage) -> Path:
        return self.work / "facts" / f"{stage.job}-{stage.name}.json".replace(" ", "-")

    def known(self, stage: Stage) -> Facts | None:
        """The facts of this very stage from an earlier start."""
        facts = Facts.read(self.path(stage))
        return facts if facts and facts.digest == stage.digest(self.code) else None

    def make(self, stage: Stage, others: Mapping[str, Facts]) -> Facts:
        """Run a stage and keep its facts; what the others of its job came to decides whether it can be run."""
        facts = Facts(
            job=stage.job,
            stage=stage.name,
            digest=stage.digest(self.code),
            state=SKIPPED,
            command=self.shown(stage.command),
            commit=self.commit,
            began=time.strftime("%Y-%m-%d %H:%M:%S %Z"),
            load=os.getloadavg()[0],
        )
        broken = [name for name in stage.needs if not others[name].done]
        if stage.absent:
            facts = replace(facts, state=ABSENT, why=stage.absent)
        elif broken:
            facts = replace(facts, why=f"{broken[0]} {others[broken[0]].state}")
        else:
            facts = self._run(stage, facts)
        self.path(stage).parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path(stage), json.dumps(asdict(facts), indent=1) + "\n")
        return facts

    def _run(self, stage: Stage, facts: Facts) -> Facts:
        log = self.work / "logs" / self.path(stage).stem
        for path in stage.out:
            discard(path)
        taken = run_watched(
            [sys.executable, *stage.command],
            log,
            disk=self.work,
            environment=self.environment,
            limit_seconds=stage.limit_seconds,
            memory_bytes=self.memory_bytes,
        )
        outcome = last_json(read_lines(log.with_suffix(".out")))
        state = TIMED_OUT if taken.timed_out else FAILED if taken.exit_code else DONE
        why = f"after {stage.limit_seconds:.0f} s" if taken.timed_out else ""
        if state == FAILED:
            why = self._without_paths(reason(taken.exit_code, read_lines(log.with_suffix(".err"))))
        disk_bytes = sum(map(folder_bytes, stage.out))
        for path in stage.discards if state == DONE else ():
            discard(path)
        measured = asdict(taken)
        del measured["exit_code"], measured["timed_out"]
        return replace(facts, state=state, why=why, disk_bytes=disk_bytes, outcome=outcome, **measured)

    def shown(self, command: Sequence[str]) -> str:
        """A command as it may be published: without this machine's folders."""
        return self._without_paths(" ".join(["python", *command]))

    def _without_paths(self, text: str) -> str:
        folders = {str(self.work): WORK, os.environ.get("NFDIST_DATA", ""): "$NFDIST_DATA", f"{ROOT}/": ""}
        for folder, name in folders.items():
            text = text.replace(folder, name) if folder else text
        return text


def reason(exit_code: int, said: Sequence[str]) -> str:
    """Why a process failed, in one line: the last that it said, or what ended it."""
    if exit_code < 0 and said and "bad_alloc" in said[-1]:  # in a thread of a library, where nothing can catch it
        return f"out of memory: std::bad_alloc, signal {-exit_code}"
    if exit_code < 0 and (not said or exit_code == -9):
        return f"ended by signal {-exit_code}" + (", as for want of memory" if exit_code == -9 else "")
    return f"{said[-1].strip():.300}" if said else f"exit code {exit_code}, without a word"


def read_lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return []


def last_json(lines: Sequence[str]) -> dict[str, Any]:
    """The last line that is a JSON object, as commands print with --json; nothing where there is none."""
    for line in reversed(lines):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return {}


def discard(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def folder_bytes(folder: Path) -> int:
    """What the files of a folder take of a disk; of a file, what it takes."""
    every = [folder, *folder.rglob("*")] if folder.exists() else []
    return sum(one.stat().st_size for one in every if one.is_file() and not one.is_symlink())
