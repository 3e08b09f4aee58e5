"""Write aside, then rename: a directory with the right name is whole."""

import errno
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nfdist.errors import PartitionError


@contextmanager
def written_aside(directory: Path, needed_bytes: int) -> Iterator[Path]:
    """A temporary sibling that becomes `directory` when the block ends, and is removed when the block raises."""
    directory = directory.absolute()
    if os.path.lexists(directory):
        raise PartitionError(f"{directory} already exists: remove it or choose another directory")
    aside = None
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        remove_stale(directory)
        aside = directory.parent / f"{_prefix(directory)}{os.getpid()}-{socket.gethostname()}-{secrets.token_hex(4)}"
        aside.mkdir()
        yield aside
        for folder in (*(path for path in aside.iterdir() if path.is_dir()), aside):
            _flush(folder)
        aside.rename(directory)
    except OSError as error:
        _remove(aside)
        raise _explained(error, directory, needed_bytes) from error
    except BaseException:
        _remove(aside)
        raise
    _flush(directory.parent)


def existing_ancestor(directory: Path) -> Path:
    """The nearest folder above `directory` that is already there: the disk it will be on."""
    return next(folder for folder in directory.absolute().parents if folder.is_dir())


def remove_stale(directory: Path) -> None:
    """Remove what processes of this host that are no longer alive left beside `directory`."""
    pattern = re.compile(re.escape(_prefix(directory)) + r"(\d+)-(.*)-[0-9a-f]{8}")
    for sibling in directory.parent.iterdir():
        match = pattern.fullmatch(sibling.name)
        if match and match[2] == socket.gethostname() and not _alive(int(match[1])):
            _remove(sibling)


def _prefix(directory: Path) -> str:
    return f".{directory.name}.tmp-"


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove(aside: Path | None) -> None:
    if aside is not None:
        shutil.rmtree(aside, ignore_errors=True)


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _explained(error: OSError, directory: Path, needed_bytes: int) -> PartitionError:
    needed = f"{needed_bytes / 2**20:,.1f} MiB"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return PartitionError(
            f"the disk that holds {directory.parent} is full: the partition needs about {needed}; "
            "free some space or choose another directory"
        )
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR) and os.path.lexists(directory):
        return PartitionError(f"{directory} appeared while it was being written: remove it or choose another directory")
    return PartitionError(f"{directory} cannot be written: {error}")
