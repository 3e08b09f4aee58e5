"""Result files: what a row came to, one small JSON file each."""

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nfdist.files import replace_file


@dataclass(frozen=True)
class SeedScore:
    """The best validation epoch of a seed and its scores, as fractions."""

    seed: int
    epoch: int
    valid: float
    test: float
    smoothed_test: float | None = None


@dataclass(frozen=True)
class Result:
    """A row's scores and costs, or the line with which it `failed`; the digest tells what was run on which data."""

    id: str
    digest: str
    metric: str
    epochs: int
    commit: str
    command: str
    per_seed: tuple[SeedScore, ...] = ()
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    failed: str = ""

    @property
    def tests(self) -> list[float]:
        """The test scores of the seeds, in percent."""
        return [100 * score.test for score in self.per_seed]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.tests)

    @property
    def smoothed_mean(self) -> float | None:
        """The mean test score of smoothed answers, in percent, where every seed has them."""
        scores = [score.smoothed_test for score in self.per_seed]
        known = [100 * score for score in scores if score is not None]
        return statistics.fmean(known) if known and len(known) == len(scores) else None

    @property
    def deviation(self) -> float | None:
        """The sample deviation over the seeds; None of a single one."""
        return statistics.stdev(self.tests) if len(self.per_seed) > 1 else None

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        content = asdict(self)
        if not self.failed:
            content |= {"test_mean": self.mean, "test_deviation": self.deviation}
        replace_file(folder / f"{self.id}.json", json.dumps(content, indent=2) + "\n")


def read_result(folder: Path, row_id: str) -> Result | None:
    """The result of a row, if there is one."""
    path = folder / f"{row_id}.json"
    if not path.exists():
        return None
    content = json.loads(path.read_text())
    scores = tuple(SeedScore(**score) for score in content.pop("per_seed"))
    known = {name: value for name, value in content.items() if name not in ("test_mean", "test_deviation")}
    return Result(**known, per_seed=scores)


def run_folder(work: Path, row_id: str, digest: str) -> Path:
    """Where a row's run is, among those of other settings."""
    return work / "runs" / f"{row_id}-{digest}"


def seed_scores(outcome: Mapping[str, Any]) -> tuple[SeedScore, ...]:
    """The scores of what a training printed, whether it nests the best epoch or not."""
    found = []
    for seed in outcome["per_seed"]:
        best = seed.get("best") or seed
        smoothed = (seed.get("smoothed") or {}).get("test")
        found.append(SeedScore(seed["seed"], best["epoch"], best["valid"], best["test"], smoothed))
    return tuple(found)


def total_seconds(outcome: Mapping[str, Any]) -> float:
    """What a training took over all seeds and phases; waiting for batches is part of training."""
    seconds = outcome["seconds"]
    if isinstance(seconds, Mapping):
        return float(sum(value for phase, value in seconds.items() if phase != "wait"))
    return float(seconds)
