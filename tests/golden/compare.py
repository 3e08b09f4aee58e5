"""Whether the present code computes what another commit does, bit for bit in float32: make golden BASE=COMMIT.

    python -m tests.golden.compare BASE [--tolerance 1e-6]

Each side runs its own golden cases by its own adapter. Exit codes: 0 equal, 1 different, 2 no comparison.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.golden import ROOT
from tests.golden.facts import differences


class IncomparableError(Exception):
    """Why there is nothing to compare with, in one line."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.compare", description=__doc__.split("\n", 1)[0])
    parser.add_argument("base", metavar="BASE", nargs="?", default="", help="a commit, branch or tag")
    parser.add_argument("--tolerance", type=float, default=0.0, help="the largest relative difference (default 0)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which leaves nothing behind
    try:
        with tempfile.TemporaryDirectory() as folder, checked_out(options.base, Path(folder) / "base") as base:
            theirs = facts_by(base, Path(folder) / "base.json")
            mine = facts_by(ROOT, Path(folder) / "present.json")
    except IncomparableError as error:
        print(f"golden: {error}", file=sys.stderr)
        return 2
    return report(mine, theirs, options.tolerance)


@contextmanager
def checked_out(base: str, path: Path) -> Iterator[Path]:
    """A work tree of a commit, for the length of a block."""
    if not base:
        raise IncomparableError("BASE is missing: name the commit to compare with, make golden BASE=COMMIT")
    found = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}")
    if found.returncode:
        raise IncomparableError(f"BASE={base} is no commit of this repository: name one that git log shows")
    commit = found.stdout.strip()
    added = _git("worktree", "add", "--detach", str(path), commit)
    try:
        if added.returncode:
            raise IncomparableError(f"BASE={base} cannot be checked out: {added.stderr.strip().splitlines()[-1]}")
        if not (path / "tests" / "golden" / "__main__.py").exists():
            raise IncomparableError(f"BASE={base} has no tests/golden: name a commit that has golden cases")
        yield path
    finally:
        _git("worktree", "remove", "--force", str(path))


def facts_by(root: Path, out: Path) -> dict[str, dict[str, Any]]:
    """All facts by the code in a work tree, which refuses to run if another nfdist shadows its own."""
    words = [sys.executable, "-m", "tests.golden", "--precision", "float32", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=root, env=environment, stdout=sys.stderr, check=False)
    if done.returncode:
        raise IncomparableError(f"the golden cases of {root} failed with exit code {done.returncode}, see above")
    facts: dict[str, dict[str, Any]] = json.loads(out.read_text())
    return facts


def report(mine: dict[str, dict[str, Any]], theirs: dict[str, dict[str, Any]], tolerance: float) -> int:
    """Print a line a case; 1 if any of BASE's differs by more than the tolerance or is gone."""
    worst = 0.0
    for name in dict.fromkeys((*theirs, *mine)):
        if name not in theirs:
            print(f"{name}: new")
            continue
        apart = differences(mine.get(name, {}), theirs[name])
        largest = max(apart, key=lambda fact: apart[fact])
        print(f"{name}: " + (f"{apart[largest]:.2g} in {largest}" if apart[largest] else "equal"))
        worst = max(worst, apart[largest])
    verdict = f"largest relative difference {worst:.2g}" if worst else "all equal"
    print(f"{len(theirs)} cases, {verdict}" + (f", more than {tolerance:g}" if worst > tolerance else ""))
    return int(worst > tolerance)


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
