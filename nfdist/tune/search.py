"""The trials of a study, one after another: all ranks train each of them, and rank 0 asks and tells Optuna."""

import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from signal import Signals
from typing import Any

import torch

from nfdist import log
from nfdist.collectives import broadcast, broadcast_text, raised_on_all_ranks
from nfdist.config import Config
from nfdist.errors import ConfigError, NfdistError, PartitionError, WorldError
from nfdist.memory import is_shortage
from nfdist.rendezvous import Place
from nfdist.training.job import train
from nfdist.tune.search_space import Value, with_values
from nfdist.tune.study import REPORTS_A_SEED, Study, Suggestion
from nfdist.world import World

_GO_ON, _PRUNE, _OUT_OF_TIME = range(3)
_SECONDS_BETWEEN_LINES = 30.0


@dataclass(frozen=True)
class Limits:
    """How many trials a study has, and when this process begins no more (by time.monotonic)."""

    trials: int
    deadline: float

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.deadline


class TrialEnded(BaseException):
    """What ends the training of a trial early, on every rank; no `except Exception` on its way catches it."""

    def __init__(self, verdict: int) -> None:
        self.out_of_time = verdict == _OUT_OF_TIME
        super().__init__("out of time" if self.out_of_time else "pruned")


class Course:
    """How a trial comes along: told of every evaluation on every rank, it ends the trial on all of them."""

    def __init__(self, config: Config, world: World, limits: Limits, suggestion: Suggestion | None) -> None:
        self._world, self._limits, self._suggestion = world, limits, suggestion
        self._seeds, self._epochs = config.train.seeds, config.train.epochs
        self._bests: dict[int, float] = {}
        self._reported, self._told = -1, time.monotonic()
        self.epoch = 0

    @property
    def score(self) -> float:
        """The mean of the seeds' best validation scores so far."""
        return statistics.fmean(self._bests.values())

    def __call__(self, seed: int, epoch: int, best: float | None) -> None:
        """Every rank must call this."""
        verdict = torch.tensor([self._verdict(seed, epoch, best)])
        ended = int(broadcast(self._world, verdict, 0, "trial"))
        if ended:
            raise TrialEnded(ended)

    def _verdict(self, seed: int, epoch: int, best: float | None) -> int:
        if self._suggestion is None or best is None:
            return _GO_ON
        self.epoch, self._bests[seed] = epoch, best
        if self._limits.is_over:
            return _OUT_OF_TIME
        step = self._seeds.index(seed) * (REPORTS_A_SEED + 1) + epoch * REPORTS_A_SEED // self._epochs
        if step > self._reported:
            self._reported = step
            if self._suggestion.report(step, self.score):
                return _PRUNE
        if time.monotonic() - self._told > _SECONDS_BETWEEN_LINES:
            self._told = time.monotonic()
            log.notice(f"trial {self._suggestion.number}: seed {seed}, epoch {epoch}, valid {best:.4f}")
        return _GO_ON


def search(
    base: Config, study: Study | None, place: Place, world: World, device: torch.device, limits: Limits
) -> Signals | None:
    """Make trials until there are enough or time is over, or a signal comes, which is returned.

    Every rank must call this; only rank 0 has the study.
    """
    while True:
        suggestion = study.claim(limits.trials) if study is not None and not limits.is_over else None
        text = broadcast_text(world, json.dumps(suggestion.values) if suggestion else "", 0)
        if not text:
            return None
        stopped = _make_trial(base, json.loads(text), suggestion, place, world, device, limits)
        if suggestion is not None and study is not None:
            _tell(study, suggestion.number, limits)
        if stopped is not None:
            return stopped


def _make_trial(
    base: Config,
    values: Mapping[str, Value],
    suggestion: Suggestion | None,
    place: Place,
    world: World,
    device: torch.device,
    limits: Limits,
) -> Signals | None:
    """Train with some values on all ranks; the signal that stopped it."""
    started = time.monotonic()
    try:
        with raised_on_all_ranks():
            config = with_values(base, values)
        course = Course(config, world, limits, suggestion)
        result, stopped = train(config, place, world, device, False, course)
    except TrialEnded as ended:
        if suggestion is not None:
            if ended.out_of_time:
                suggestion.interrupt("ran out of time")
            else:
                suggestion.prune(time.monotonic() - started)
        return None
    except (NfdistError, MemoryError, RuntimeError) as error:
        if not _is_of_trial(error, world, bool({"relation.order", "relation.kind"} & set(values))):
            raise
        if suggestion is not None:
            suggestion.fail(first_line(error), time.monotonic() - started)
        return None
    with raised_on_all_ranks():
        score = None if result is None else _score(result)
    if suggestion is not None:
        if score is None:
            suggestion.interrupt("stopped by a signal")
        else:
            suggestion.complete(score, time.monotonic() - started)
    return stopped


def _is_of_trial(error: Exception, world: World, varies_order: bool) -> bool:
    """Whether the settings of a trial are to blame, and all ranks know: then the next ones are tried."""
    if not isinstance(error, NfdistError):
        return world.size == 1 and is_shortage(error)
    if isinstance(error, WorldError) or (isinstance(error, PartitionError) and not varies_order):
        return False
    return world.size == 1 or error.everywhere


def _score(result: Mapping[str, Any]) -> float:
    """The mean over the seeds of the best epoch's validation score, smoothed where answers are: all that counts."""
    answers = [seed["smoothed"] or seed["best"] for seed in result["per_seed"] if seed["best"]]
    scores = [answer["valid"] for answer in answers]
    if not scores or None in scores:
        raise ConfigError(
            f"no labeled nodes to validate on, or {result['metric']} is undefined there, so there is nothing to choose "
            "by: give data.split, such as random:0.5/0.25/0.25, or another evaluate.metric"
        )
    return statistics.fmean(scores)


def _tell(study: Study, number: int, limits: Limits) -> None:
    """A line about the trial that ended."""
    trial, best = study.trial(number), study.best()
    came_to = {
        "complete": f"valid {trial.score:.4f}" if trial.score is not None else "",
        "pruned": f"pruned at {trial.last:.4f}" if trial.last is not None else "pruned",
    }.get(trial.state, f"{trial.state}: {trial.reason}")
    seconds = f" in {trial.seconds:.1f} s" if trial.seconds is not None and trial.state != "failed" else ""
    record = f" (best {best.score:.4f}, trial {best.number})" if best is not None and best.score is not None else ""
    log.notice(
        f"trial {number}, {study.counted()} of {limits.trials}: {came_to}{seconds}{record}; {shown(trial.values)}"
    )


def first_line(error: Exception) -> str:
    """An error in short."""
    return (str(error).splitlines() or [""])[0][:300] or type(error).__name__


def shown(values: Mapping[str, Value]) -> str:
    """Settings in short, as they could be typed."""
    return " ".join(f"{name}={f'{value:.4g}' if isinstance(value, float) else value}" for name, value in values.items())
