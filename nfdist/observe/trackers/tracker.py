"""What an experiment tracker is to a training: a place that the facts of metrics.jsonl are copied to, seed by seed."""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nfdist.errors import ConfigError

_POSITION = ("kind", "seed", "step", "metric")  # what a line says of itself
_SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker names it; `settings` are all of the configuration, by full names."""

    id: str
    name: str
    path: Path
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Line:
    """A line of metrics.jsonl: when it was true, and its numbers by the names that a tracker shows."""

    kind: str
    seed: int
    step: int
    values: dict[str, float]

    @staticmethod
    def told_by(facts: Mapping[str, Any]) -> bool:
        """Whether a line has what all lines have."""
        return isinstance(facts.get("kind"), str) and all(type(facts.get(name)) is int for name in ("seed", "step"))

    @staticmethod
    def of(facts: Mapping[str, Any]) -> "Line":
        """Scores are named by their metric, as accuracy/valid; other numbers by the line's kind, as step/loss."""
        kind, metric, values = str(facts["kind"]), facts.get("metric"), {}
        for name, value in facts.items():
            if name not in _POSITION and isinstance(value, int | float):
                values[f"{metric if metric and name in _SPLITS else kind}/{name}"] = float(value)
        return Line(kind, int(facts["seed"]), int(facts["step"]), values)


Sent = Mapping[str, int]  # the last step of each kind of line that a tracker has


class Tracker(Protocol):
    """One that `forgets` can drop what it has of a seed after a step; others are not told twice what they have.

    Whatever fails is raised: then it is closed, and another one begins with the last lines that were surely kept.
    """

    forgets: bool

    def begin(self, seed: int, after: int) -> Sent:
        """Take up a seed after a step, or begin it after step 0; what the tracker itself knows to have of it."""

    def add(self, seed: int, lines: Sequence[Line]) -> None:
        """Add lines in their order, and keep them."""

    def end(self, seed: int, result: Mapping[str, float]) -> None:
        """Add what a seed came to."""

    def close(self, finished: bool) -> None:
        """End all that was begun; whether the training is over."""


@dataclass(frozen=True)
class Door:
    """Where a tracker is: the module and class of its adapter, whose package is the extra of the tracker's name."""

    name: str
    module: str
    adapter: str

    def check(self) -> None:
        """Refuse a tracker whose package is missing, or that could not begin as it is set up."""
        try:
            importlib.import_module(f"nfdist.observe.trackers.{self.module}").check()
        except ImportError as error:
            raise ConfigError(
                f"observe.trackers has {self.name}, whose package cannot be imported ({error}): "
                f'pip install "nfdist[{self.name}]"'
            ) from error

    def open(self, run: TrackedRun) -> Tracker:
        module = importlib.import_module(f"nfdist.observe.trackers.{self.module}")
        made: Tracker = getattr(module, self.adapter)(run)
        return made


DOORS = {
    door.name: door
    for door in (
        Door("tensorboard", "tensorboard_events", "TensorBoardEvents"),
        Door("mlflow", "mlflow_runs", "MLflowRuns"),
        Door("wandb", "wandb_runs", "WandbRuns"),
    )
}


def check_trackers(names: Iterable[str]) -> None:
    """Refuse trackers that cannot be used, before a training begins."""
    for name in names:
        DOORS[name].check()


def flattened(result: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a seed's result, such as best/valid."""
    found: dict[str, float] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            found |= flattened(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[prefix + name] = float(value)
    return found
