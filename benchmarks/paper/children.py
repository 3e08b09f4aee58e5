"""The processes of a run: they say what they have to say into files, and end with the run."""

import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments import ROOT


class RowError(Exception):
    """A row that came to nothing; the text is the last line its process said."""


class StoppedError(Exception):
    """The user ended the run: its rows are neither done nor failed."""


@dataclass
class Children:
    """The processes under way, which end with the run."""

    stopping: bool = False
    _running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, command: Sequence[str], environment: dict[str, str], log: Path) -> str:
        """What the command printed, its messages being kept in the log's file; `RowError` if it fails."""
        log.parent.mkdir(parents=True, exist_ok=True)
        printed, messages = (log.with_name(f"{log.name}.{end}") for end in ("out", "err"))
        with printed.open("wb") as out, messages.open("wb") as errors:
            with self._lock:
                if self.stopping:
                    raise StoppedError
                # In a session of its own, so that Ctrl-C reaches it through `stop` alone.
                child = subprocess.Popen(
                    command, cwd=ROOT, env=environment, stdout=out, stderr=errors, start_new_session=True
                )
                self._running.add(child)
            code = child.wait()
        with self._lock:
            self._running.discard(child)
            if self.stopping:
                raise StoppedError
        if code:
            said = messages.read_text(errors="replace").strip().splitlines() or ["no message"]
            raise RowError(f"exit code {code}: {said[-1]}")
        return printed.read_text()

    def stop(self) -> None:
        """Ask every process to end; trainings write a checkpoint first."""
        with self._lock:
            self.stopping = True
            for child in self._running:
                child.terminate()
