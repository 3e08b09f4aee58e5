"""nfdist commands within this process, which has paid for the imports."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

from nfdist.cli.main import main


def run_command(*words: str | Path, code: int = 0) -> Any:
    """What the last line of a command says, which must end with this exit code."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        found = main([*map(str, words), "--json"])
    if found != code:
        raise RuntimeError(f"nfdist {' '.join(map(str, words))} ended with {found}: {err.getvalue()}")
    return None if code else json.loads(out.getvalue().splitlines()[-1])
