"""A study on disk: what is searched for (study.json), and every trial (study.journal, Optuna's own journal).

A study is a function of what its trials came to: the settings of the next one are drawn from a seed and its place among
those that count. A trial that was interrupted does not count, so a study that was killed and goes on is, with one
worker, what it would have been.
"""

import fcntl
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from nfdist import files, layout, seeds
from nfdist.errors import CheckpointError, ConfigError
from nfdist.reading import reading
from nfdist.runs.ownership import owning_directory
from nfdist.tune.default_spaces import starts
from nfdist.tune.optuna_door import optuna
from nfdist.tune.purpose import Purpose
from nfdist.tune.search_space import Choices, Interval, Value

JOURNAL_FILE = layout.JOURNAL_FILE
NAME = "nfdist"
# The median pruner: trials before it ends any, and reports of a seed before it looks, since small learning rates begin
# slowly. A seed reports so many times, evenly over its epochs: each is a write to the journal.
STARTUP_TRIALS, REPORTS_A_SEED, WARMUP_REPORTS = 5, 20, 6
INTERRUPTED, REASON, SECONDS = "interrupted", "reason", "seconds"


@dataclass(frozen=True)
class Trial:
    """A trial; `score` is the mean of the seeds' best validation scores, `last` that mean when it was last reported."""

    number: int
    state: str
    values: Mapping[str, Value]
    score: float | None
    last: float | None
    seconds: float | None
    reason: str


class Suggestion:
    """A trial to be made: its settings, and how Optuna is told of it."""

    def __init__(self, study: "Study", asked: Any) -> None:
        self.number, self.values = int(asked.number), _plain(asked.params)
        self._study, self._asked = study, asked

    def report(self, step: int, score: float) -> bool:
        """Tell how far it has come; whether it falls behind the median of the others."""
        self._asked.report(score, step)
        return bool(self._asked.should_prune())

    def complete(self, score: float, seconds: float) -> None:
        self._end("COMPLETE", {SECONDS: seconds}, score)

    def prune(self, seconds: float) -> None:
        self._end("PRUNED", {SECONDS: seconds})

    def fail(self, reason: str, seconds: float) -> None:
        self._end("FAIL", {SECONDS: seconds, REASON: reason})

    def interrupt(self, reason: str) -> None:
        """It does not count, and its settings come again."""
        self._end("FAIL", {REASON: reason, INTERRUPTED: True})

    def _end(self, state: str, facts: Mapping[str, Any], score: float | None = None) -> None:
        for key, value in facts.items():
            self._asked.set_user_attr(key, value)
        self._study.tell(self.number, score, state)


class Study:
    """The trials of a folder that `Purpose.write` has begun; any number of processes of one host may open it."""

    def __init__(self, folder: Path, purpose: Purpose) -> None:
        self.folder, self.purpose = folder, purpose
        module = optuna()
        self._claiming = FileLock(folder / "claim.lock")
        self._seed, self._starts = purpose.config.train.seeds[0], starts(purpose.config, purpose.space)
        self._distributions = {name: _distribution(values) for name, values in purpose.space.items()}
        pruner = module.pruners.MedianPruner(STARTUP_TRIALS, WARMUP_REPORTS, n_min_trials=2)
        path = folder / JOURNAL_FILE
        with reading(path, CheckpointError):
            backend = module.storages.journal.JournalFileBackend(str(path), FileLock(folder / "journal.lock"))
            self._study = module.create_study(
                study_name=NAME,
                storage=module.storages.JournalStorage(backend),
                direction="maximize" if purpose.larger_is_better else "minimize",
                pruner=pruner,
                load_if_exists=True,
            )

    def claim(self, most: int) -> Suggestion | None:
        """The next trial, unless `most` of them are there or under way; the first have values of their own (`starts`).

        Other processes wait meanwhile.
        """
        with self._claiming:
            trials = self._trials()
            place = sum(1 for one in trials if one.state.name != "WAITING" and INTERRUPTED not in one.user_attrs)
            if place >= most:
                return None
            if place < len(self._starts) and not any(one.state.name == "WAITING" for one in trials):
                self._study.enqueue_trial(self._starts[place])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of options that Optuna calls experimental
                self._study.sampler = optuna().samplers.TPESampler(
                    seed=seeds.derive(self._seed, "trial", place) % 2**32, multivariate=True, constant_liar=True
                )
                return Suggestion(self, self._study.ask(self._distributions))

    def tell(self, number: int, score: float | None, state: str) -> None:
        self._study.tell(number, score, state=optuna().trial.TrialState[state])

    def interrupt_running(self) -> None:
        """Mark trials that were running when their process ended; their owner must be sure that it did."""
        storage = self._study._storage
        for one in self._trials():
            if one.state.name == "RUNNING":
                storage.set_trial_user_attr(one._trial_id, INTERRUPTED, True)
                storage.set_trial_user_attr(one._trial_id, REASON, "its process ended")
                self.tell(one.number, None, "FAIL")

    def trials(self) -> list[Trial]:
        """All trials that were begun, in the order they were."""
        return [_trial(one) for one in self._trials() if one.state.name != "WAITING"]

    def trial(self, number: int) -> Trial:
        return _trial(self._trials()[number])

    def counted(self) -> int:
        """How many trials are over and count."""
        ended = (one for one in self._trials() if one.state.name in ("COMPLETE", "PRUNED", "FAIL"))
        return sum(1 for one in ended if INTERRUPTED not in one.user_attrs)

    def best(self) -> Trial | None:
        """The trial with the best score, of equal ones the first."""
        ranked = self.ranked()
        return ranked[0] if ranked else None

    def ranked(self) -> list[Trial]:
        """The trials that have a score, the best first."""
        sign = -1.0 if self.purpose.larger_is_better else 1.0
        scored = [one for one in self.trials() if one.score is not None]
        return sorted(scored, key=lambda one: (sign * (one.score or 0.0), one.number))

    def importances(self) -> dict[str, float]:
        """The share of the scores' variance that each setting explains (functional ANOVA), the largest first.

        Empty where there are too few different scores to tell.
        """
        scores = {one.score for one in self.ranked()}
        if len(scores) < 4:
            return {}
        evaluator = optuna().importance.FanovaImportanceEvaluator(seed=0)
        shares = optuna().importance.get_param_importances(self._study, evaluator=evaluator)
        return {name: float(share) for name, share in shares.items()}

    def _trials(self) -> Sequence[Any]:
        return self._study.get_trials(deepcopy=False)  # type: ignore[no-any-return]


class FileLock:
    """A lock of the system on a file, which the kernel drops with the process: Optuna's own would stay behind."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def acquire(self) -> bool:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.release()


@contextmanager
def owned_study(folder: Path, purpose: Purpose, launch: str = "") -> Iterator[Study]:
    """The study of a folder, begun or continued, with this process as its owner until the block ends."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out {folder} is a file: choose another folder")
    optuna()  # before anything is written
    with owning_directory(folder, "tune", "tuned", launch):
        with files.disk_errors_as(CheckpointError, folder):
            purpose.begin(folder)
            repair_journal(folder)
            study = Study(folder, purpose)
            study.interrupt_running()
        yield study


def repair_journal(folder: Path) -> None:
    """Cut off a last line that a process did not live to write whole: Optuna would write its next one behind it."""
    path = folder / JOURNAL_FILE
    if path.exists():
        written = path.read_bytes()
        whole = written.rfind(b"\n") + 1
        if whole < len(written):
            os.truncate(path, whole)


def _distribution(values: Choices | Interval) -> Any:
    kinds = optuna().distributions
    if isinstance(values, Choices):
        return kinds.CategoricalDistribution(values.values)
    if isinstance(values.low, int):
        return kinds.IntDistribution(values.low, values.high, log=values.log, step=values.step or 1)
    return kinds.FloatDistribution(values.low, values.high, log=values.log, step=values.step)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as people write them: a few steps of 0.1 are 0.3, not 0.30000000000000004."""
    return {name: float(f"{value:.9g}") if isinstance(value, float) else value for name, value in values.items()}


def _trial(one: Any) -> Trial:
    reported = one.intermediate_values
    attributes = one.user_attrs
    state = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}[one.state.name]
    return Trial(
        number=one.number,
        state="interrupted" if INTERRUPTED in attributes else state,
        values=_plain(one.params),
        score=one.value if state == "complete" else None,
        last=reported[max(reported)] if reported else None,
        seconds=attributes.get(SECONDS),
        reason=attributes.get(REASON, ""),
    )
