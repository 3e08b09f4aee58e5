"""Results as a row of the paper's tables leaves them, and processes that make none."""

import json
from collections.abc import Sequence
from pathlib import Path

from children import Children, RowError
from experiments import ROOT
from results import Result, SeedScore

OUTCOME = {
    "per_seed": [{"seed": 0, "best": {"epoch": 2, "train": 1.0, "valid": 0.5, "test": 0.4}}],
    "seconds": {"train": 1.0, "wait": 0.5, "evaluate": 2.0},
    "peak_memory_bytes": 1 << 20,
}


def made_result(row_id: str, tests: list[float], failed: str = "", digest: str = "d", first_seed: int = 0) -> Result:
    scores = tuple(SeedScore(seed, 7, 0.5, test) for seed, test in enumerate(tests, first_seed))
    return Result(row_id, digest, "accuracy", 1000, "abc1234", "nfdist train x.toml", scores, 12.3, 2**28, failed)


class RecordedChildren(Children):
    """Runs nothing, remembers what was asked, and fails where a word says so."""

    def __init__(self, broken: str = "never") -> None:
        super().__init__()
        self.asked: list[Sequence[str]] = []
        self.broken = broken

    def run(self, command: Sequence[str], environment: dict[str, str], log: Path) -> str:
        self.asked.append(command)
        if self.broken in command:
            raise RowError(f"exit code 1: {ROOT}/launch is broken")
        return f"words first\n{json.dumps(OUTCOME)}\n"
