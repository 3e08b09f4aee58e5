"""What comes in batches and is not held in memory: it passes into a file without a name, which is mapped."""

import mmap
from collections.abc import Iterable
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nfdist.scratch import Scratch


def spooled(batches: Iterable[Any], schema: pa.Schema, scratch: Scratch) -> pa.Table:
    """The table of all batches, as a view of a file of `scratch`."""
    with scratch.file() as file:
        with pa.ipc.new_stream(pa.PythonFile(file, "w"), schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return pa.ipc.open_stream(pa.py_buffer(mapped)).read_all()


def spooled_numbers(arrays: Iterable[NDArray[Any]], dtype: Any, file: IO[bytes]) -> NDArray[Any]:
    """The numbers of all arrays, one after another, as a view of an empty file; a single array as it is."""
    remaining = iter(arrays)
    first, second = next(remaining, None), next(remaining, None)
    if second is None:
        return np.empty(0, dtype) if first is None else first
    size = sum(file.write(some.data) for some in (first, second) if some is not None)
    del first, second
    size += sum(file.write(some.data) for some in remaining)
    file.flush()
    if size == 0:
        return np.empty(0, dtype)
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)
