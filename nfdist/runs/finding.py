"""Runs and partitions below a folder, found without following symlinks and without opening what they hold."""

import os
from collections.abc import Iterator
from pathlib import Path

from nfdist.errors import CheckpointError
from nfdist.layout import HOPS_SUFFIX, MANIFEST_NAME, PART_PREFIX, STATES_FOLDER
from nfdist.runs.run import RUN_FILE, STRENGTHS_FOLDER

MOST_DEPTH = 8  # below the folder: studies and comparisons have their runs two levels down
_INSIDE_A_RUN = ("checkpoints", STATES_FOLDER, STRENGTHS_FOLDER)


def folders_below(top: Path, depth: int = MOST_DEPTH) -> Iterator[tuple[Path, list[str]]]:
    """Every folder that may hold a run or a partition or be one, with the names in it; unreadable ones are left out.

    CheckpointError if `top` itself cannot be read.
    """
    try:
        entries = list(os.scandir(top))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"{top} cannot be read ({reason}): name a folder that holds runs") from None
    yield from _below(top, entries, depth)


def _below(folder: Path, entries: list["os.DirEntry[str]"], depth: int) -> Iterator[tuple[Path, list[str]]]:
    names = sorted(entry.name for entry in entries)
    yield folder, names
    if depth == 0 or is_partition(names):
        return
    skipped = _INSIDE_A_RUN if RUN_FILE in names else ()
    for entry in sorted(entries, key=lambda one: one.name):
        if entry.name in skipped or entry.name.startswith(".") or entry.name.endswith(HOPS_SUFFIX):
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from _below(Path(entry.path), list(os.scandir(entry.path)), depth - 1)
        except OSError:
            continue


def is_partition(names: list[str]) -> bool:
    """Whether the names in a folder are those of a partition."""
    return MANIFEST_NAME in names and any(name.startswith(PART_PREFIX) for name in names)


def size_bytes(path: Path) -> int:
    """What a file, or all files of a folder, take on disk; what vanishes meanwhile, and links, take nothing."""
    try:
        if path.is_symlink() or not path.is_dir():
            return path.lstat().st_size
        return sum(size_bytes(Path(entry.path)) for entry in os.scandir(path))
    except OSError:
        return 0
