"""The runs of a folder at a glance: what each is, how far it has come, and whether anybody is at work in it.

Only small files are read, and the end of metrics.jsonl: checksums of tensors are for `nfdist inspect`.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from nfdist.errors import CheckpointError
from nfdist.runs.checkpoint import STATE_FILE, Checkpoint
from nfdist.runs.finding import folders_below, size_bytes
from nfdist.runs.ownership import BEAT_SECONDS, LOCK_SUFFIX, Lock
from nfdist.runs.ranking import rank
from nfdist.runs.run import EVALUATIONS_FILE, METRICS_FILE, RESULT_FILE, RUN_FILE, Run

RunState = Literal["running", "done", "stopped", "lost", "damaged"]
WATCHED_SECONDS = 3 * BEAT_SECONDS  # in which an owner on another machine counts, unless a network keeps it from that
DEEDS = {"train": "trained", "evaluate": "evaluated", "follow": "followed"}
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class RunFacts:
    """A run as a line of a table; scores are those of the best epoch, of the best of several seeds.

    `seeds_done` are over, and `epoch` counts those of the next one, or of the last. `written` is a time of the clock.
    """

    path: Path
    state: RunState
    model: str = ""
    graph: str = ""
    epoch: int | None = None
    epochs: int | None = None
    seeds: int = 1
    seeds_done: int = 0
    metric: str = ""
    valid: float | None = None
    test: float | None = None
    written: float = 0.0
    size_bytes: int = 0
    at_work: tuple[str, ...] = ()  # who trains it, evaluates it and follows it
    problem: str = ""

    def as_dict(self, now: float) -> dict[str, Any]:
        """The facts as JSON has them."""
        plain = {name: value for name, value in vars(self).items() if name != "written"}
        return {**plain, "path": str(self.path), "at_work": list(self.at_work), "age_seconds": now - self.written}


@dataclass
class _Seen:
    """A run and its locks, of which those of other machines are still to be watched."""

    facts: RunFacts
    locks: dict[str, Lock] = field(default_factory=dict)
    finished: bool = False

    @property
    def unclear(self) -> list[Lock]:
        return [lock for lock in self.locks.values() if lock.held is None]

    def settled(self) -> RunFacts:
        """The facts with the state that follows from the locks."""
        held = {name: lock for name, lock in self.locks.items() if lock.held}
        at_work = tuple(_described(name, lock) for name, lock in held.items())
        state: RunState = "lost" if "train" in self.locks else "stopped"
        if self.facts.problem:
            state = "damaged"
        elif "train" in held:
            state = "running"
        elif self.finished:
            state = "done"
        return replace(self.facts, state=state, at_work=at_work)


def runs_below(top: Path, watched_seconds: float = WATCHED_SECONDS) -> list[RunFacts]:
    """Every run of a folder, what was written last first; CheckpointError if the folder cannot be read.

    Where another machine has a lock that cannot be seen from here, its owner gets some seconds to count.
    """
    seen = [_see(folder) for folder, names in folders_below(top) if RUN_FILE in names]
    _watch([lock for one in seen for lock in one.unclear], seen, watched_seconds)
    return sorted((one.settled() for one in seen), key=lambda facts: (-facts.written, str(facts.path)))


def locks_of(path: Path) -> dict[str, Lock]:
    """The locks that a run has, by the command that took them."""
    found = {name: Lock.look(path / f"{name}{LOCK_SUFFIX}") for name in DEEDS}
    return {name: lock for name, lock in found.items() if lock is not None}


def _watch(unclear: Sequence[Lock], seen: Sequence[_Seen], seconds: float) -> None:
    ends, counting = time.monotonic() + seconds, set[Path]()
    while unclear and len(counting) < len(unclear) and time.monotonic() < ends:
        time.sleep(_LOOK_SECONDS)
        counting |= {lock.path for lock in unclear if lock.path not in counting and lock.has_counted()}
    for one in seen:
        one.locks = {
            name: replace(lock, held=lock.path in counting) if lock.held is None else lock
            for name, lock in one.locks.items()
        }


def _see(path: Path) -> _Seen:
    """A run, whatever is wrong with it."""
    facts = RunFacts(path, "damaged", written=_last_write(path), size_bytes=size_bytes(path))
    try:
        locks = locks_of(path)
    except OSError as error:
        return _Seen(replace(facts, problem=f"{error.filename} cannot be read: {error.strerror}"))
    try:
        run = Run.open(path)
        config = run.config
        facts = replace(
            facts,
            model=config.model.name,
            graph=config.data.partition,
            epochs=config.train.epochs,
            seeds=len(config.train.seeds),
        )
        progress = _progress(run)
        finished = progress.pop("finished")
        return _Seen(replace(facts, **progress), locks, finished)
    except (CheckpointError, OSError, LookupError, TypeError, ValueError) as error:
        text = str(error) if isinstance(error, CheckpointError) else f"{path} cannot be understood: {error}"
        return _Seen(replace(facts, problem=text), locks)


def _progress(run: Run) -> dict[str, Any]:
    """How far a run has come, and its best scores."""
    result, latest = run.result(), run.metrics_file.tail()
    evaluations = [line for line in latest if line.get("kind") == "evaluation"]
    metric = next((str(line["metric"]) for line in reversed(evaluations) if "metric" in line), "")
    order = list(run.config.train.seeds)
    bests = [found for seed in run.seeds if (found := run.best_of(seed))]
    if result is not None:
        best, done = result["best"] or {}, len(order)
        epochs = [seed["final"]["epoch"] for seed in result["per_seed"][-1:] if seed["final"]]
        metric = str(result["metric"])
    else:
        best = max(bests, key=rank, default={})
        done, epochs = _seeds_done(run, order), []
    epoch = max([*epochs, *_epochs(run, latest)], default=0)
    scores = {name: best.get(name) for name in ("valid", "test")}
    return {"epoch": epoch, "seeds_done": done, "metric": metric, **scores, "finished": result is not None}


def _seeds_done(run: Run, order: list[int]) -> int:
    """How many seeds are over: they are trained one after the other."""
    begun = [order.index(seed) for seed in run.seeds if seed in order]
    return max(begun, default=0)


def _epochs(run: Run, latest: Sequence[dict[str, Any]]) -> list[int]:
    """What the last lines of the metrics and the newest checkpoint say of whole epochs, of the last seed begun."""
    order, found = list(run.config.train.seeds), []
    seeds = [seed for seed in order if run.checkpoint_paths(seed)]
    told = [line for line in latest if type(line.get("epoch")) is int and line.get("seed") in order]
    current = max((order.index(one) for one in (*seeds, *(line["seed"] for line in told))), default=0)
    found += [line["epoch"] for line in told if line["seed"] == order[current]]
    for path in list(run.checkpoint_paths(order[current]).values())[-1:]:
        with suppress(CheckpointError):
            epoch = Checkpoint.open(path, verify=False).state.get("epoch")
            found += [epoch] if type(epoch) is int else []
    return found


def _last_write(path: Path) -> float:
    """When something was last written, by the clock of the disk; reading a run, or locking it, is no writing."""
    files = [path / name for name in (RUN_FILE, METRICS_FILE, RESULT_FILE, EVALUATIONS_FILE)]
    times = [0.0]
    for file in (*files, *path.glob(f"checkpoints/seed-*/step-*/{STATE_FILE}")):
        with suppress(OSError):
            times.append(file.stat().st_mtime)
    return max(times)


def _described(name: str, lock: Lock) -> str:
    by = "" if lock.owner is None else f" by process {lock.owner.process} on {lock.owner.host}"
    return f"{DEEDS[name]}{by}"
