"""The course of a training: what metrics.jsonl and result.json tell of losses, scores, time, memory and throughput."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nfdist.config import Config
from nfdist.errors import CheckpointError

SPLITS = ("train", "valid", "test")
STEP_NUMBERS = ("loss", "nodes_per_second", "gradient_norm", "learning_rate", "peak_memory_bytes")
PHASES = ("computing", "waiting for batches", "communicating", "evaluating", "writing checkpoints")

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class SeedCourse:
    """One seed: numbers of its steps by their names, scores by split, losses by split; x is a step, or an epoch.

    `smoothed` is the entry of result.json: scores of the best epoch after smoothing, there once the seed has ended.
    """

    seed: int
    steps: dict[str, Points]
    scores: dict[str, Points]
    losses: dict[str, Points]
    best: dict[str, Any] | None
    smoothed: dict[str, Any] | None
    seconds: dict[str, float]
    rank_seconds: tuple[float, ...]
    epoch: int
    num_steps: int


@dataclass(frozen=True)
class Course:
    """`seconds` are those of all seeds, by phase. `finished` means that there is a result."""

    metric: str
    seeds: tuple[SeedCourse, ...]
    seconds: dict[str, float]
    peak_memory_bytes: int
    nodes_per_second: float | None
    sent_bytes: float | None
    straggler_gap_seconds: float | None
    finished: bool

    @property
    def rank_seconds(self) -> tuple[float, ...]:
        """What each rank worked on steps, over the seeds that have as many ranks as the last."""
        last = next((len(one.rank_seconds) for one in reversed(self.seeds) if one.rank_seconds), 0)
        rows = [one.rank_seconds for one in self.seeds if last and len(one.rank_seconds) == last]
        return tuple(sum(column) for column in zip(*rows, strict=True))


def read_course(lines: Sequence[Mapping[str, Any]], result: Mapping[str, Any] | None, config: Config) -> Course:
    """The course that the lines of a run's metrics tell of."""
    by_seed: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    try:
        for line in lines:
            by_seed[line["seed"]].append(line)
        entries = {entry["seed"]: entry for entry in (result or {}).get("per_seed", ())}
        order = [seed for seed in config.train.seeds if seed in by_seed or seed in entries]
        seeds = tuple(_seed(seed, by_seed[seed], entries.get(seed, {})) for seed in order)
        metrics = [line["metric"] for line in lines if line["kind"] == "evaluation"]
        steps = [line for line in lines if line["kind"] == "step"]
        worked = sum(line["seconds"] for line in steps)
        seen = sum(line["nodes_per_second"] * line["seconds"] for line in steps)
        peaks = [line.get("peak_memory_bytes") or 0 for line in lines]
        gaps = [line.get("straggler_gap_seconds", 0.0) for line in steps]
        return Course(
            metric=str((result or {}).get("metric") or (metrics[-1] if metrics else config.evaluate.metric)),
            seeds=seeds,
            seconds={phase: sum(one.seconds[phase] for one in seeds) for phase in PHASES},
            peak_memory_bytes=int((result or {}).get("peak_memory_bytes") or max(peaks, default=0)),
            nodes_per_second=seen / worked if worked else None,
            sent_bytes=float(np.mean([line.get("sent_bytes", 0) for line in steps])) if steps else None,
            straggler_gap_seconds=float(np.mean(gaps)) if steps else None,
            finished=result is not None,
        )
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise CheckpointError(f"metrics.jsonl or result.json lacks what a training writes ({error!r})") from None


def _seed(seed: int, lines: Sequence[Mapping[str, Any]], entry: Mapping[str, Any]) -> SeedCourse:
    steps = [line for line in lines if line["kind"] == "step"]
    evaluations = [line for line in lines if line["kind"] == "evaluation"]
    train = sum(line["seconds"] for line in steps)
    wait = sum(line.get("wait_seconds", 0.0) for line in steps)
    talk = sum(line.get("communication_seconds", 0.0) for line in steps)
    evaluate = sum(line["seconds"] for line in evaluations)
    checkpoint = entry.get("seconds", {}).get("checkpoint", 0.0)
    return SeedCourse(
        seed=seed,
        steps={name: _points(steps, "step", name) for name in STEP_NUMBERS},
        scores={split: _points(evaluations, "epoch", split) for split in SPLITS},
        losses={split: _points(evaluations, "epoch", f"{split}_loss") for split in SPLITS},
        best=entry.get("best"),
        smoothed=entry.get("smoothed"),
        seconds=dict(zip(PHASES, (max(train - wait - talk, 0.0), wait, talk, evaluate, checkpoint), strict=True)),
        rank_seconds=tuple(map(float, entry.get("rank_seconds", ()))),
        # A step has the number of epochs before it, an evaluation that of those that are over.
        epoch=max([line["epoch"] for line in evaluations] + [line["epoch"] + bool(entry) for line in steps], default=0),
        num_steps=max((line["step"] for line in steps), default=0),
    )


def _points(lines: Sequence[Mapping[str, Any]], across: str, name: str) -> Points:
    return tuple((float(line[across]), float(line[name])) for line in lines if line.get(name) is not None)
