"""The gate to a mapped file: no byte leaves before its block was compared with the checksum of when it was written.

A block is checked at its first use by this process, so that a large file costs what is read of it.
"""

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray
from torch import Tensor

from nfdist.errors import NfdistError, PartitionError
from nfdist.files import checksum
from nfdist.store.ranges import Integers

BLOCK_BYTES = 1 << 20
CURE = "restore the file, or partition again"
# xxhash lets go of the interpreter for larger pieces, and waits up to 5 ms to get it back where threads are busy: many
# times what a block takes.
PIECE_BYTES = 1 << 16
DIGITS = 16  # of a block's checksum, the 64-bit XXH3 in hexadecimal


@dataclass(frozen=True)
class StoredFile:
    """A file as a manifest records it: `blocks` are the checksums of its blocks, one after another."""

    size_bytes: int
    blocks: str

    @property
    def digests(self) -> NDArray[np.uint64]:
        """The checksum of every block; ValueError if there is not one for each."""
        if len(self.blocks) != DIGITS * -(-self.size_bytes // BLOCK_BYTES):
            raise ValueError(f"{len(self.blocks)} digits are no checksums of {self.size_bytes:,} bytes")
        return np.frombuffer(bytes.fromhex(self.blocks), dtype=">u8").astype(np.uint64)


@dataclass(frozen=True)
class WholeFile:
    """A file as manifests of version 1 record it, by one BLAKE2b."""

    size_bytes: int
    checksum: str


class BlockDigests:
    """The checksums of a file's blocks, worked out while it is written."""

    def __init__(self) -> None:
        self._size, self._open, self._blocks = 0, xxhash.xxh3_64(), ""

    def update(self, content: Any) -> None:
        view = memoryview(content).cast("B")
        while len(view):
            piece = view[: BLOCK_BYTES - self._size % BLOCK_BYTES]
            self._open.update(piece)
            self._size += len(piece)
            if self._size % BLOCK_BYTES == 0:
                self._blocks += self._open.hexdigest()
                self._open.reset()
            view = view[len(piece) :]

    def stored(self) -> StoredFile:
        rest = self._open.hexdigest() if self._size % BLOCK_BYTES else ""
        return StoredFile(self._size, self._blocks + rest)


def recorded(path: Path) -> StoredFile:
    """A file as a manifest records it."""
    digests = BlockDigests()
    block = memoryview(bytearray(BLOCK_BYTES))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block):
            digests.update(block[:count])
    return digests.stored()


class Gate:
    """A file mapped for reading. Errors are of the class `refusal` and end with the `cure`."""

    def __init__(
        self,
        path: Path,
        stored: StoredFile | WholeFile,
        cure: str = CURE,
        refusal: type[NfdistError] = PartitionError,
    ) -> None:
        self.path, self._cure, self._refusal = path, cure, refusal
        try:
            check_size(path, stored.size_bytes)
            with path.open("rb") as file:
                self.content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if isinstance(stored, WholeFile):
                _check_once(path, stored)
            digests = stored.digests if isinstance(stored, StoredFile) else np.empty(0, np.uint64)
        except OSError as error:
            raise refusal(f"{path} cannot be read ({error.strerror or error}): {cure}") from None
        except ValueError as error:
            raise refusal(f"{path} {error}: {cure}") from None
        self._digests = digests
        self._unchecked = np.ones(len(digests), dtype=bool)
        self._left = len(digests)

    def check(self, start: int, stop: int) -> None:
        """Check the bytes start .. stop - 1."""
        if self._left and stop > start:
            first = start // BLOCK_BYTES
            unchecked = self._unchecked[first : (stop - 1) // BLOCK_BYTES + 1]
            self._check_blocks(np.flatnonzero(unchecked) + first)

    def check_spans(self, starts: Integers, stops: Integers) -> None:
        """Check the bytes of many spans, in any order; `check` for each of them."""
        if not self._left:
            return
        some = stops > starts
        first, last = starts[some] // BLOCK_BYTES, (stops[some] - 1) // BLOCK_BYTES
        size = len(self._unchecked) + 1
        begun = np.bincount(first, minlength=size) - np.bincount(last + 1, minlength=size)
        self._check_blocks(np.flatnonzero((begun.cumsum()[:-1] > 0) & self._unchecked))

    def check_all(self, progress: Callable[[int], None] | None = None) -> None:
        """Check every byte; `progress` gets the bytes of each block."""
        self._check_blocks(np.flatnonzero(self._unchecked), progress)

    def _check_blocks(self, numbers: Integers, progress: Callable[[int], None] | None = None) -> None:
        content = memoryview(self.content)
        for number in numbers.tolist():
            block = content[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]
            if _digest(block) != int(self._digests[number]):
                text = f"{self.path} was altered since it was written, in the MiB that begins at byte"
                raise self._refusal(f"{text} {number * BLOCK_BYTES:,}: {self._cure}")
            self._unchecked[number] = False
            if progress:
                progress(len(block))
        # Counted anew: several threads may have checked the same block.
        self._left = int(np.count_nonzero(self._unchecked))


@dataclass(frozen=True)
class Column:
    """Rows [n, ...] behind a gate, the first of them at the byte `start`; without a gate they are in memory.

    What comes out must never be written to.
    """

    _values: Tensor
    _gate: Gate | None = None
    _start: int = 0

    def __len__(self) -> int:
        return len(self._values)

    @property
    def dtype(self) -> torch.dtype:
        return self._values.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._values.shape)

    def rows(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Consecutive rows."""
        stop = len(self) if stop is None else stop
        if self._gate is not None:
            self._gate.check(self._start + start * self._row_bytes, self._start + stop * self._row_bytes)
        return self._values[start:stop]

    def at(self, rows: Integers, count: int | Integers = 1) -> Tensor:
        """The whole column, of which only row .. row + count - 1 may be used, for each of `rows`."""
        if len(rows) == 0:
            return self._values
        first, stop = int(rows.min()), int((rows + count).max())
        if first < 0 or np.min(count) < 0 or stop > len(self):
            where = self._gate.path if self._gate else "a column in memory"
            raise PartitionError(f"{where} has {len(self):,} rows, and others lead beyond: {CURE}")
        if stop - first <= len(rows):  # as good as consecutive
            self.rows(first, stop)
        elif self._gate is not None:
            starts = self._start + rows.astype(np.int64, copy=False) * self._row_bytes
            self._gate.check_spans(starts, starts + np.asarray(count, np.int64) * self._row_bytes)
        return self._values

    @property
    def _row_bytes(self) -> int:
        return self._values[0].nbytes if len(self) else 0


def _digest(block: memoryview) -> int:
    digest = xxhash.xxh3_64()
    for start in range(0, len(block), PIECE_BYTES):
        digest.update(block[start : start + PIECE_BYTES])
    return digest.intdigest()


def check_size(path: Path, size_bytes: int) -> None:
    """ValueError if a file has another size than was recorded, OSError if it cannot be found."""
    found = path.stat().st_size
    if found != size_bytes or not path.is_file():
        raise ValueError(f"has {found:,} bytes instead of {size_bytes:,}")


def _check_once(path: Path, stored: WholeFile) -> None:
    """Compare the checksum of a whole file, unless that was done on this machine and the file is the same since."""
    facts = path.stat()
    known = f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns} {facts.st_ino} {stored.checksum}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nfdist" / "verified"
    mark = cache / blake2b(known.encode(errors="surrogateescape"), digest_size=16).hexdigest()
    if mark.exists():
        return
    if checksum(path) != stored.checksum:
        raise ValueError("was altered since it was written")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        mark.touch()
    except OSError:
        pass  # it will be compared again
