"""Removing what a folder could do without: never anything that somebody works with, and whole until it is gone."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from nfdist import files
from nfdist.cleaning.candidates import RUN_LOCKS, Candidate, Kept, graphs_in_use, look, mapped_files, of_run
from nfdist.errors import CheckpointError
from nfdist.runs.overview import DEEDS, WATCHED_SECONDS, runs_below
from nfdist.runs.ownership import LOCK_SUFFIX, Lock, owning


@dataclass(frozen=True)
class Plan:
    """What can be removed, of all kinds, with its size, and what stays since somebody works with it."""

    candidates: tuple[Candidate, ...]
    kept: tuple[Kept, ...]

    def of(self, kinds: Collection[str]) -> list[Candidate]:
        return [one for one in self.candidates if one.kind in kinds]


def plan(top: Path, watched_seconds: float = WATCHED_SECONDS) -> Plan:
    """What could be removed from a folder at the moment; nothing is changed."""
    candidates, kept = look(top)
    busy = {facts.path: facts.at_work[0] for facts in runs_below(top, watched_seconds) if facts.at_work}
    graphs = graphs_in_use(busy)
    mapped = mapped_files([one.path for one in candidates])
    free = []
    for one in candidates:
        reason = ""
        if one.owner in busy:
            reason = f"the run is being {busy[one.owner]}"
        elif one.kind == "tuning" and _is_held(one.owner / one.locks[0]):
            reason = "the search goes on"
        elif one.kind == "hops" and one.owner.resolve() in graphs:
            reason = f"{graphs[one.owner.resolve()]} is being {busy[graphs[one.owner.resolve()]]}"
        elif one.path in mapped:
            reason = f"process {mapped[one.path]} reads it"
        if reason:
            kept.append(Kept(one.path, reason, one.kind))
        else:
            free.append(one)
    return Plan(tuple(free), tuple(kept))


def remove(candidates: Sequence[Candidate]) -> Iterator[Candidate | Kept]:
    """Remove what can be, one after the other: each that is gone, and each that somebody has begun to work with.

    Nobody can begin to train or evaluate a run meanwhile.
    """
    for owner, group in groupby(candidates, key=attrgetter("owner")):
        own = list(group)
        with ExitStack() as stack:
            try:
                for name in {lock: None for one in own for lock in one.locks}:
                    stack.enter_context(owning(owner / name, DEEDS.get(name.removesuffix(LOCK_SUFFIX), "tuned")))
            except CheckpointError as error:
                yield from (Kept(one.path, str(error), one.kind) for one in own)
                continue
            yield from map(_remove, _still(own))


def _still(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Those of a run, whose locks are ours now, that a training has not changed since they were found."""
    of_runs = [one for one in candidates if one.locks == RUN_LOCKS]
    now = {one.path for one in of_run(of_runs[0].owner)} if of_runs else set()
    return (one for one in candidates if one not in of_runs or one.path in now)


def _remove(candidate: Candidate) -> Candidate | Kept:
    if candidate.kind == "cache":
        from nfdist.cleaning.fetched import remove_unused  # here, since it loads numpy

        return candidate if remove_unused(candidate) else Kept(candidate.path, "a process uses it", candidate.kind)
    with files.disk_errors_as(CheckpointError, candidate.path), suppress(FileNotFoundError):  # another one cleans, too
        files.remove(candidate.path)
    if candidate.kind == "hops":
        with suppress(OSError):  # unless more is in it
            candidate.path.parent.rmdir()
    return candidate


def _is_held(path: Path) -> bool:
    """Whether somebody may hold a lock; one of another machine counts as held."""
    lock = Lock.look(path)
    return lock is not None and lock.held is not False
