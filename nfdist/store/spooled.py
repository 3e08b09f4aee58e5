"""Tables that are not held in memory: their batches pass into a file without a name, which is mapped."""

import mmap
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

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
