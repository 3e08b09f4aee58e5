"""What could be removed from a folder of runs and partitions, and what must stay since somebody is at work with it."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from nfdist import files
from nfdist.errors import CheckpointError
from nfdist.layout import EMBEDDINGS_FILE, HOPS_SUFFIX, JOURNAL_FILE, STATES_FOLDER, STUDY_FILE
from nfdist.runs.checkpoint import Checkpoint
from nfdist.runs.finding import folders_below, is_partition, size_bytes
from nfdist.runs.overview import DEEDS
from nfdist.runs.ownership import LOCK_SUFFIX
from nfdist.runs.run import RUN_FILE, Run

RUN_LOCKS = tuple(f"{name}{LOCK_SUFFIX}" for name in DEEDS)
STUDY_LOCKS = (f"tune{LOCK_SUFFIX}",)


@dataclass(frozen=True)
class Candidate:
    """Something that can be removed by itself; `owner` is its run, partition or study, whose `locks` must be free."""

    path: Path
    kind: str
    owner: Path
    locks: tuple[str, ...] = ()
    size_bytes: int = 0


@dataclass(frozen=True)
class Kept:
    """Something that cannot be removed, and why; without a kind, nothing of it can."""

    path: Path
    reason: str
    kind: str = ""


def look(top: Path) -> tuple[list[Candidate], list[Kept]]:
    """Everything of a folder that could be removed, whoever is at work with it, and what nothing can be said of.

    CheckpointError if the folder cannot be read.
    """
    candidates: list[Candidate] = []
    kept: list[Kept] = []
    for folder, names in folders_below(top):
        candidates += _left_aside(folder, (), folder)
        if RUN_FILE in names:
            try:
                candidates += of_run(folder)
            except (CheckpointError, OSError) as error:
                kept.append(Kept(folder, str(error)))
        if is_partition(names):
            candidates += _of_partition(folder)
            if folder == top:  # whose hops are beside it
                candidates += _of_hops(folder.absolute().with_name(folder.absolute().name + HOPS_SUFFIX))
        if STUDY_FILE in names and JOURNAL_FILE in names and "best.toml" in names:
            candidates.append(Candidate(folder / JOURNAL_FILE, "tuning", folder, STUDY_LOCKS))
        for name in names:
            if name.endswith(HOPS_SUFFIX):
                candidates += _of_hops(folder / name)
    inside = (one for one in candidates if not _is_behind_link(one.path, top))
    return [replace(one, size_bytes=size_bytes(one.path)) for one in inside], kept


def of_run(path: Path) -> list[Candidate]:
    """What a run could do without; CheckpointError if the run is damaged, which is no time to remove anything."""
    run = Run.open(path)
    best_known = {seed: run.best_of(seed) for seed in run.seeds}
    found = [Candidate(one, "checkpoints", path, RUN_LOCKS) for one in _old_checkpoints(run)]
    if run.result() is not None:
        for seed, best in best_known.items():
            newest = list(run.checkpoint_paths(seed).items())[-1:]
            for step, checkpoint in newest:
                if best is not None and best["step"] != step and best["step"] in run.checkpoint_paths(seed):
                    found.append(Candidate(checkpoint, "last", path, RUN_LOCKS))
    if (path / STATES_FOLDER).is_dir():
        found.append(Candidate(path / STATES_FOLDER, "states", path, RUN_LOCKS))
    if (path / EMBEDDINGS_FILE).is_file():
        found.append(Candidate(path / EMBEDDINGS_FILE, "embeddings", path, RUN_LOCKS))
    for folder in (path / STATES_FOLDER, *path.glob("checkpoints"), *path.glob("checkpoints/seed-*")):
        found += _left_aside(folder, RUN_LOCKS, path)
    return found


def _old_checkpoints(run: Run) -> Iterator[Path]:
    """Those that are neither the best nor the last whole one of their seed, nor later than that."""
    for seed in run.seeds:
        saved = run.checkpoint_paths(seed)
        best = run.best_of(seed)
        whole = _last_whole(saved)
        if whole is None or (best is not None and best["step"] not in saved):
            continue  # damaged: nfdist inspect tells
        for step, path in run.all_checkpoint_paths(seed):
            if path != saved[step] or (step < whole and (best is None or step != best["step"])):
                yield path


def _last_whole(saved: dict[int, Path]) -> int | None:
    """The step of the newest checkpoint whose checksums hold, which --resume would take."""
    if len(saved) < 2:
        return next(iter(saved), None)
    for step, path in reversed(saved.items()):
        with suppress(CheckpointError):
            Checkpoint.open(path)
            return step
    return None


def _of_partition(folder: Path) -> Iterator[Candidate]:
    """What killed processes left in the parts of a partition."""
    for part in folder.iterdir():
        if part.is_dir() and not part.is_symlink():
            yield from _left_aside(part, (), folder)


def _of_hops(folder: Path) -> Iterator[Candidate]:
    with suppress(OSError):
        graph = folder.with_name(folder.name.removesuffix(HOPS_SUFFIX))
        if folder.is_dir() and not folder.is_symlink():
            orders = sorted(one for one in folder.iterdir() if re.fullmatch(r"order-\d+", one.name))
            yield from (Candidate(one, "hops", graph) for one in orders)
            yield from _left_aside(folder, (), graph)


def _left_aside(folder: Path, locks: tuple[str, ...], owner: Path) -> Iterator[Candidate]:
    with suppress(OSError):
        for path in files.stale(folder):
            yield Candidate(path, "temporary", owner, locks)


def _is_behind_link(path: Path, top: Path) -> bool:
    """Whether a path is a symlink, or is reached from the folder by one."""
    folder = top.absolute()
    return path.is_symlink() or any(
        one.is_symlink() for one in (path.absolute(), *path.absolute().parents) if folder in one.parents
    )


def mapped_files(paths: Sequence[Path]) -> dict[Path, int]:
    """Which of these files and folders processes of this host have mapped, and the number of one such process."""
    wanted = {str(path.resolve()): path for path in paths}
    found: dict[Path, int] = {}
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError, ValueError):
            for name in set(
                re.findall(r"^\S+ \S+ \S+ \S+ \S+ +(/.*)$", maps.read_text(errors="replace"), re.MULTILINE)
            ):
                for one in (name, *map(str, Path(name).parents)):
                    if one in wanted:
                        found.setdefault(wanted[one], int(maps.parent.name))
    return found


def graphs_in_use(runs: Collection[Path]) -> dict[Path, Path]:
    """The partitions of runs that somebody trains or evaluates, and one such run each."""
    found = {}
    for path in runs:
        with suppress(CheckpointError, OSError, ValueError):
            found[Path(Run.open(path).config.data.partition).resolve()] = path
    return found
