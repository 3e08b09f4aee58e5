"""Whether a benchmark is slower than at another commit: both run in turns on this machine.

    python benchmarks/compare.py BASE attention.py [its options]    # or make bench-compare BASE=... BENCH=...

Each side runs its own script by its own code, --turns times. Of every row that the script prints, the median of the
first column, nfdist's own figure, is compared. Exit codes: 0, 2 where there is nothing to compare.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^(\S.*?)  +([\d.,]+)(?: ?[A-Za-z]+)? +([\d.,]+)(?: ?[A-Za-z]+)? +([\d.,]+)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("base", metavar="BASE", help="a commit, branch or tag")
    parser.add_argument("script", help="a script of benchmarks/")
    parser.add_argument("--turns", type=int, default=3)
    options, words = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        added = git("worktree", "add", "--detach", str(base), options.base)
        if added.returncode:
            print(
                f"BASE={options.base} cannot be checked out: {added.stderr.strip().splitlines()[-1]}", file=sys.stderr
            )
            return 2
        try:
            sides = {"present": ROOT, "base": base}
            runs: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
            for turn in range(options.turns):
                for name in sorted(sides, reverse=bool(turn % 2)):  # who goes first changes, too
                    runs[name].append(rows_of(sides[name], options.script, words))
        finally:
            git("worktree", "remove", "--force", str(base))
    return report(runs["present"], runs["base"])


def git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)


def rows_of(root: Path, script: str, words: list[str]) -> dict[str, float]:
    """What a script prints as nfdist's own figures, by the names of its rows."""
    command = [sys.executable, str(root / "benchmarks" / script), *words]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    found = [match.groups() for line in done.stdout.splitlines() if (match := ROW.match(line.strip()))]
    if done.returncode or not found:
        sys.exit(f"{' '.join(command)} ended with {done.returncode} and {len(found)} rows:\n{done.stderr[-2000:]}")
    return {name: float(own.replace(",", "")) for name, own, *_ in found}


def report(present: list[dict[str, float]], base: list[dict[str, float]]) -> int:
    print(f"{'':44}{'present':>10}{'base':>10}{'ratio':>8}")
    for name in present[0]:
        mine, theirs = (statistics.median(run[name] for run in runs if name in run) for runs in (present, base))
        print(f"{name:44}{mine:>10.3f}{theirs:>10.3f}{mine / theirs if theirs else float('nan'):>8.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
