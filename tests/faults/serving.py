"""The engine's side of a server: commands in, what became of them out."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("server.py")
SECONDS = 60.0
GUARD_BYTES = 5 << 30  # of address space on top of what torch has mapped: a runaway must not hurt the machine
STARTING = "nfdist: "


class ServerLostError(Exception):
    """The server ended by itself."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended, in the words of a shell; `killed` if by a signal, `late` if by the time limit."""

    code: int
    killed: bool
    late: bool
    sent: bool
    peak_bytes: int
    seconds: float
    stdout: str = field(repr=False)
    stderr: str = field(repr=False)
    words: tuple[str, ...] = ()

    @property
    def result(self) -> dict[str, Any] | None:
        """What --json printed."""
        lines = self.stdout.splitlines()
        try:
            return dict(json.loads(lines[-1]))
        except (ValueError, IndexError, TypeError):
            return None


class Server:
    """A process of its own with the code under test; one command at a time. A lean one starts faster."""

    def __init__(self, code: Path, lean: bool = False) -> None:
        self.code = code
        environment = {
            **os.environ,
            "PYTHONPATH": str(code),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        for name in ("RANK", "WORLD_SIZE", "NFDIST_DATA"):
            environment.pop(name, None)
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(SCRIPT), str(code), *(["--lean"] if lean else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.facts = self._reply()
        self.first_codes: dict[Path, int] = {}  # of the first command in each folder: the one that a case is about
        self._texts = tempfile.TemporaryDirectory(prefix="nfdist-faults-")

    def run(
        self,
        words: list[str],
        folder: Path,
        *,
        seconds: float = SECONDS,
        signal: int = 0,
        after: float = 0.0,
        file_bytes: int = 0,
    ) -> Outcome:
        """Run `nfdist WORDS` in a folder; a signal is sent after some seconds."""
        stdout, stderr = (Path(self._texts.name) / name for name in ("stdout", "stderr"))
        request = {
            "argv": words,
            "folder": str(folder),
            "stdout": str(stdout),
            "stderr": str(stderr),
            "seconds": seconds,
            "memory_bytes": GUARD_BYTES,
            "file_bytes": file_bytes,
            "signal": signal,
            "after": after,
        }
        for path in (stdout, stderr):  # a command that is killed at once must not have the words of another
            path.unlink(missing_ok=True)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ServerLostError from None
        reply = self._reply()
        out, err = (path.read_text(errors="replace") if path.exists() else "" for path in (stdout, stderr))
        self.first_codes.setdefault(folder, reply["code"])
        return Outcome(**reply, stdout=out, stderr=err, words=tuple(words))

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # one that is gone already
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(SECONDS)
        self._texts.cleanup()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ServerLostError(f"the server of {self.code} ended: its own message is above")
        return dict(json.loads(line))
