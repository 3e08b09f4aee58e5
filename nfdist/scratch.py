"""Scratch: where arrays of any size lie, in memory as long as they fit and in files after that."""

import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from nfdist.errors import ConfigError, NfdistError
from nfdist.files import disk_errors_as


class Scratch:
    """Zeros in at most `limit_bytes` of memory together (None: any number), the others mapped from files in `folder`.

    The files have no name, so the system removes them with the last array that uses them, even after a crash. Messages
    are of the class `refusal` and call the work `work`; `cure` is what to do about a folder that is in memory itself.
    """

    def __init__(
        self,
        limit_bytes: int | None = None,
        folder: Path | None = None,
        work: str = "evaluation",
        cure: str = "set TMPDIR to a folder on a disk",
        refusal: type[NfdistError] = ConfigError,
    ) -> None:
        self._left = limit_bytes
        self._folder = Path(folder or tempfile.gettempdir())
        self._work, self._cure, self._refusal = work, cure, refusal

    def array(self, shape: Sequence[int] | int, dtype: Any) -> NDArray[Any]:
        """An array of zeros."""
        dimensions = (shape,) if isinstance(shape, int) else tuple(shape)
        size = math.prod(dimensions) * np.dtype(dtype).itemsize
        if size == 0:
            return np.zeros(dimensions, dtype)
        return np.frombuffer(self.take(size), dtype).reshape(dimensions)

    @property
    def is_bounded(self) -> bool:
        """Whether what has no room in memory lies in files."""
        return self._left is not None

    def has_room(self, size: int) -> bool:
        """Whether what is taken next, if it has this size, will be in memory."""
        return self._left is None or size <= self._left

    def take(self, size: int) -> mmap.mmap:
        """So many bytes, which is more than none."""
        if self._left is not None:
            if size > self._left:
                return self._file(size)
            self._left -= size
        try:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(f"unable to allocate {size / 2**20:,.0f} MiB") from error
        # Rows are read in the order of edges: with pages of 4 KiB half of that time goes into finding the page.
        memory.madvise(mmap.MADV_HUGEPAGE)
        weakref.finalize(memory, self._give_back, size)
        return memory

    def _give_back(self, size: int) -> None:
        if self._left is not None:
            self._left += size

    def _file(self, size: int) -> mmap.mmap:
        with self.file(f"{size / 2**20:,.0f} MiB more") as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk would be a bus error later
            return mmap.mmap(file.fileno(), size)

    @contextmanager
    def file(self, needed: str = "more room") -> Iterator[IO[bytes]]:
        """A file without a name; what is mapped of it stays when the block ends."""
        with disk_errors_as(self._refusal, self._folder / "scratch", f"{self._work} needs {needed}; "):
            if _is_memory(self._folder):
                raise self._refusal(f"{self._folder} is kept in memory, which is limited: {self._cure}")
            with tempfile.TemporaryFile(dir=self._folder) as file:
                yield file


def _is_memory(folder: Path) -> bool:
    """Whether files here are in memory, as often those in /tmp are."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return any(fields[2] == number and fields[fields.index("-") + 1] in ("tmpfs", "ramfs") for fields in mounts)
