"""A tracker in memory, which fails when it is told to, and a run to be tracked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nfdist.observe.trackers.tracker import Line, Sent, TrackedRun

Told = list[tuple[str, int]]


@dataclass
class Memory:
    """What a tracker of this kind keeps, whatever happens to the process that tells it."""

    forgets: bool = False
    knows: bool = False
    told: dict[int, Told] = field(default_factory=dict)
    results: dict[int, list[dict[str, float]]] = field(default_factory=dict)
    closed: list[bool] = field(default_factory=list)
    fails: int = 0  # so many of the next additions, after their first line

    def open(self, run: TrackedRun) -> "RememberingTracker":
        """As a door does."""
        return RememberingTracker(self)


class RememberingTracker:
    def __init__(self, memory: Memory) -> None:
        self.memory, self.forgets = memory, memory.forgets

    def begin(self, seed: int, after: int) -> Sent:
        told = self.memory.told.setdefault(seed, [])
        if self.forgets:
            told[:] = [(kind, step) for kind, step in told if step <= after]
            return {}
        known: dict[str, int] = dict(told)
        return known if self.memory.knows else {}

    def add(self, seed: int, lines: Sequence[Line]) -> None:
        for line in lines:
            self.memory.told[seed].append((line.kind, line.step))
            if self.memory.fails:
                self.memory.fails -= 1
                raise OSError("the server\nis gone")

    def end(self, seed: int, result: Mapping[str, float]) -> None:
        self.memory.results.setdefault(seed, []).append(dict(result))

    def close(self, finished: bool) -> None:
        self.memory.closed.append(finished)


def tracked_run(path: Path) -> TrackedRun:
    path.mkdir(exist_ok=True)
    return TrackedRun("a1b2", path.name, path, {"train.epochs": "3"})


def lines_of(seed: int, steps: range, evaluate_every: int = 3) -> list[dict[str, Any]]:
    """The lines that a training writes."""
    lines: list[dict[str, Any]] = []
    for step in steps:
        lines.append({"kind": "step", "seed": seed, "step": step, "loss": 1 / step, "seconds": 0.5})
        if step % evaluate_every == 0:
            scores = {"train": 0.5, "valid": step / 100, "test": None, "valid_loss": 0.25}
            lines.append({"kind": "evaluation", "seed": seed, "step": step, "metric": "accuracy", **scores})
    return lines


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def kinds_and_steps(lines: Sequence[Mapping[str, Any]]) -> Told:
    return [(line["kind"], line["step"]) for line in lines]
