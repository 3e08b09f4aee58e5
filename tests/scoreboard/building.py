"""Stages that take milliseconds, and facts as stages of the scoreboard leave them."""

import os
from pathlib import Path
from typing import Any

from stage import DONE, Facts, Stage, Workshop

MEMORY_BYTES = 2 << 30


def workshop(folder: Path, code: str = "1") -> Workshop:
    return Workshop(folder, MEMORY_BYTES, "abc1234", code, dict(os.environ))


def python(name: str, text: str, **options: Any) -> Stage:
    """A stage that runs a line of Python."""
    return Stage("job", name, ("-c", text), **{"limit_seconds": 20.0, **options})


def counted(name: str, folder: Path, text: str = "", **options: Any) -> Stage:
    """A stage that leaves a line for each time that it was run."""
    return python(name, f"open({str(folder / name)!r}, 'a').write('run\\n'); {text or 'pass'}", **options)


def runs(name: str, folder: Path) -> int:
    path = folder / name
    return len(path.read_text().splitlines()) if path.exists() else 0


def facts(stage: str, **known: Any) -> Facts:
    given = {"state": DONE, "seconds": 10.0, "cpu_seconds": 12.0, "private_bytes": 1 << 30, "load": 0.5}
    given |= {"digest": "d", "command": f"python {stage}", "commit": "abc1234", "began": "2026-01-01 00:00:00 UTC"}
    return Facts(job="amazon2m", stage=stage, **{**given, **known})
