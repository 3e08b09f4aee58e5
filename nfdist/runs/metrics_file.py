"""metrics.jsonl: a line a step, epoch or evaluation, written by one process and cut back when a run goes on."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from nfdist import files, log
from nfdist.errors import CheckpointError
from nfdist.runs.records import finite, read

LOOK_BACK_BYTES = 1 << 16
READ_BYTES = 1 << 18
TAIL_BYTES = 1 << 16


@dataclass(frozen=True)
class MetricsFile:
    path: Path

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line; NaN and infinities become null."""
        with files.disk_errors_as(CheckpointError, self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite(line), allow_nan=False) + "\n")

    def lines(self) -> list[dict[str, Any]]:
        """All whole lines; the last one may be torn."""
        lines, problem = self.readable()
        if problem:
            raise CheckpointError(problem)
        return lines

    def readable(self) -> tuple[list[dict[str, Any]], str | None]:
        """The lines that can be read, and what is wrong with the first that cannot."""
        content = read(self.path) or b""
        lines, problem = [], None
        for number, line in enumerate(content[: content.rfind(b"\n") + 1].split(b"\n")[:-1], start=1):
            try:
                lines.append(dict(json.loads(line)))
            except (ValueError, TypeError, RecursionError) as error:
                problem = problem or f"{self.path} has no JSON in line {number} ({error}): remove that line"
        return lines, problem

    def lines_after(self, position: int) -> tuple[list[dict[str, Any]], int]:
        """Some whole lines after a position, and the position after them; those that are no JSON are left out."""
        if not self.path.exists():
            return [], position
        with self.path.open("rb") as file:
            file.seek(position)
            content = file.read(READ_BYTES)
        content = content[: content.rfind(b"\n") + 1]
        return _readable(content), position + len(content)

    def tail(self, most_bytes: int = TAIL_BYTES) -> list[dict[str, Any]]:
        """The last whole lines, without reading the others; lines that are no JSON are left out."""
        try:
            with self.path.open("rb") as file:
                start = max(0, file.seek(0, os.SEEK_END) - most_bytes)
                file.seek(start)
                content = file.read(most_bytes)
        except FileNotFoundError:
            return []
        first = content.find(b"\n") + 1 if start else 0  # the line before may have begun earlier
        return _readable(content[first : content.rfind(b"\n") + 1])

    @property
    def size_bytes(self) -> int:
        """The size so far, for `truncate` later."""
        with files.disk_errors_as(CheckpointError, self.path):
            return self.path.stat().st_size if self.path.exists() else 0

    def truncate(self, size_bytes: int) -> None:
        """Cut back to an earlier size, and with it whatever a crash left at the end.

        What was lost meanwhile is lost, which is told: a whole checkpoint is worth more than the lines before it.
        """
        with files.disk_errors_as(CheckpointError, self.path):
            if not self.path.exists():
                whole = 0
            else:
                with self.path.open("rb+") as file:
                    whole = _end_of_line(file, size_bytes)
                    file.truncate(whole)
        if whole < size_bytes:
            log.warn(
                f"{self.path} has lost {size_bytes - whole:,} of the {size_bytes:,} bytes it had at the checkpoint: "
                "the steps they told of are missing in it, the training is not affected"
            )


def _end_of_line(file: BinaryIO, before: int) -> int:
    """Where the last whole line ends that does so before a position or at it."""
    end = min(file.seek(0, os.SEEK_END), before)
    while end > 0:
        start = max(0, end - LOOK_BACK_BYTES)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n") + 1
        if found:
            return start + found
        end = start
    return 0


def _readable(content: bytes) -> list[dict[str, Any]]:
    """The lines that are JSON."""
    found = []
    for line in content.split(b"\n"):
        with suppress(ValueError, TypeError, RecursionError):
            found.append(dict(json.loads(line)))
    return found
