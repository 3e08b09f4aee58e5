"""The sweep as a script: python -m tests.interrupts --moments 20 --commands train,tune.

Moments are spread evenly over what the command takes undisturbed, each by a part of a step that is drawn anew.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.interrupts.commands import INTERRUPTED, Material
from tests.interrupts.sweep import interrupt


def sweep(names: Sequence[str], moments: int, seed: int, folder: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Every interruption with its problems, of which there should be none."""
    material, draw = Material.make(folder / "material"), random.Random(seed)
    for name in names:
        whole = interrupt(name, material, folder / name / "whole", None)
        yield name, f"undisturbed {whole.seconds:.1f} s", list(whole.problems)
        for number in range(moments):
            after = whole.seconds * (number + draw.random()) / moments
            group = number % 2 == 1
            outcome = interrupt(name, material, folder / name / str(number), after, group=group)
            told = f"{'group' if group else 'process'} after {after:.2f} s of {whole.seconds:.1f}: {outcome.code}"
            yield name, told, list(outcome.problems)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interrupts", description=__doc__)
    parser.add_argument("--commands", default=",".join(INTERRUPTED))
    parser.add_argument("--moments", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="nfdist-interrupts-") as folder:
        for name, told, problems in sweep(options.commands.split(","), options.moments, options.seed, Path(folder)):
            failed += bool(problems)
            print(f"{name:11} {told}", *(f"\n    {problem}" for problem in problems), flush=True)
    print(f"{failed} interruptions with problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
