"""Archive: the arrays of an .npz file, each refused before it is loaded if it cannot be what its header says."""

import math
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.reading import check_expansion, reading
from nfdist.scratch import Scratch

_KINDS = "biufU"  # booleans, integers, floats and text
_BYTES_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class Archive:
    """An open .npz; `names` are those of its arrays, which are read into `scratch`."""

    path: Path
    members: zipfile.ZipFile
    names: tuple[str, ...]
    scratch: Scratch

    @staticmethod
    @contextmanager
    def open(path: Path, scratch: Scratch | None = None) -> Iterator["Archive"]:
        """The archive, refused when it cannot be read or names an array twice."""
        with reading(path):
            members = zipfile.ZipFile(path)
        with members:
            names = Counter(name.removesuffix(".npy") for name in members.namelist())
            for name, count in names.items():
                if count > 1:
                    raise PartitionError(f"{path} holds {count} arrays called {name!r}: save it again with one of them")
            yield Archive(path, members, tuple(names), scratch or Scratch())

    def header(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """The shape and dtype of an array without its data."""
        with reading(self.path), self.members.open(self._member(name)) as stream:
            shape, dtype, _ = _read_header(stream)
            return shape, dtype

    def read(self, name: str, axis: int = 0, part: slice | None = None) -> NDArray[Any]:
        """An array, in this machine's order of bytes, or a part of it along an axis."""
        info = self._member(name)
        with reading(self.path):
            size = self.path.stat().st_size
            if info.compress_size > size or (info.compress_type == zipfile.ZIP_STORED and info.file_size > size):
                raise ValueError(f"{name} is said to take {info.compress_size:,} bytes of {size:,}")
            check_expansion(self.path, info.file_size, info.compress_size)
            with self.members.open(info) as stream:
                return _read_array(stream, name, info.file_size, self.scratch, axis, part)

    def _member(self, name: str) -> zipfile.ZipInfo:
        spelled = f"{name}.npy"
        return self.members.getinfo(spelled if spelled in self.members.NameToInfo else name)


def read_npy(path: Path) -> NDArray[Any]:
    """The array of an .npy file."""
    with reading(path), path.open("rb") as stream:
        return _read_array(stream, path.name, path.stat().st_size, Scratch())


def _read_array(
    stream: Any, name: str, num_bytes: int, scratch: Scratch, axis: int = 0, part: slice | None = None
) -> NDArray[Any]:
    shape, dtype, by_columns = _read_header(stream)
    if dtype.kind not in _KINDS or dtype.itemsize == 0:
        raise ValueError(f"{name} is of type {dtype}, neither numbers nor text")
    start = stream.tell()
    num_bytes -= start
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != num_bytes:
        raise ValueError(f"{name} of shape {list(shape)} and type {dtype} does not fit its {num_bytes:,} bytes")
    order: Literal["F", "C"] = "F" if by_columns else "C"
    outer, inner = 1, math.prod(shape)
    if part is not None and axis < len(shape):  # in pieces that lie one after another in the file
        before, after = shape[:axis], shape[axis + 1 :]
        outer, inner = map(math.prod, (after, before) if by_columns else (before, after))
        whole, shape = shape[axis], (*before, part.stop - part.start, *after)
    values = scratch.array(math.prod(shape), dtype)
    pieces = values.reshape(outer, -1) if outer else values.reshape(0, 0)
    for number, piece in enumerate(pieces):
        if part is not None and axis < len(shape):
            stream.seek(start + (number * whole + part.start) * inner * dtype.itemsize)
        _fill(stream, name, piece)
    return values.astype(dtype.newbyteorder("="), copy=False).reshape(shape, order=order)


def _fill(stream: Any, name: str, values: NDArray[Any]) -> None:
    left = memoryview(values.view(np.uint8).data)
    while len(left):
        count = stream.readinto(left[:_BYTES_AT_ONCE])
        if not count:
            raise EOFError(f"{name} ends early")
        left = left[count:]


def _read_header(stream: Any) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Shape, dtype, and whether the array lies column by column."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what numpy remarks on headers of its older versions
        version = npy_format.read_magic(stream)
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, by_columns, dtype = read(stream)
    return shape, dtype, by_columns
