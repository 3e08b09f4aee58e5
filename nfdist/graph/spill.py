"""Spill: where tensors with a row for every node live, in memory as long as they fit and in files after that."""

import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from nfdist.errors import ConfigError
from nfdist.files import disk_errors_as


class Spill:
    """Tensors of zeros, in at most `limit_bytes` of memory together (None: any number), the others mapped from files.

    The files have no name, so the system removes them with the last tensor that uses them, even after a crash.
    """

    def __init__(self, limit_bytes: int | None = None, folder: Path | None = None) -> None:
        self._left = limit_bytes
        self._folder = Path(folder or tempfile.gettempdir())

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        size = math.prod(shape) * dtype.itemsize
        if size == 0:
            return torch.zeros(tuple(shape), dtype=dtype)
        return torch.frombuffer(self._take(size), dtype=dtype).view(tuple(shape))

    def fits(self, shape: Sequence[int], dtype: torch.dtype) -> bool:
        """Whether the next tensor, if it is this one, will be in memory."""
        return self._left is None or math.prod(shape) * dtype.itemsize <= self._left

    def _take(self, size: int) -> mmap.mmap:
        if self._left is not None:
            if size > self._left:
                return self._file(size)
            self._left -= size
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # Rows are read in the order of edges: with pages of 4 KiB half of that time goes into finding the page.
        memory.madvise(mmap.MADV_HUGEPAGE)
        weakref.finalize(memory, self._give_back, size)
        return memory

    def _give_back(self, size: int) -> None:
        if self._left is not None:
            self._left += size

    def _file(self, size: int) -> mmap.mmap:
        need = f"evaluation needs {size / 2**20:,.0f} MiB more; "
        with disk_errors_as(ConfigError, self._folder / "scratch", need):
            if _is_memory(self._folder):
                raise ConfigError(
                    f"{self._folder} is kept in memory, which is limited: set TMPDIR to a folder on a disk"
                )
            with tempfile.TemporaryFile(dir=self._folder) as file:
                os.posix_fallocate(file.fileno(), 0, size)  # a full disk would be a bus error later
                return mmap.mmap(file.fileno(), size)


def _is_memory(folder: Path) -> bool:
    """Whether files here are in memory, as often those in /tmp are."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return any(fields[2] == number and fields[fields.index("-") + 1] in ("tmpfs", "ramfs") for fields in mounts)
