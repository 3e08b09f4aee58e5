"""Arrow IPC files of one record batch: written uncompressed, read back as views of the mapped file."""

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdist.errors import PartitionError

ALIGNMENT = 64


def rows_of(matrix: NDArray[Any]) -> Any:
    """A matrix [n, c] as an Arrow list of c numbers a row, without a copy."""
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1])


def write_columns(path: Path, columns: dict[str, Any]) -> None:
    """Write Arrow arrays as one record batch and wait until the disk has them; the first column is 64-byte aligned."""
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    batch = batch.replace_schema_metadata({"padding": "." * _padding(batch)})
    with pa.OSFile(str(path), "wb") as file:
        _write(batch, file)
    with path.open("rb") as written:
        os.fsync(written.fileno())


def map_columns(path: Path) -> dict[str, Any]:
    """The Arrow arrays of a file of one record batch, as views of the mapped file."""
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        if reader.num_record_batches != 1:
            raise PartitionError(
                f"{path} holds {reader.num_record_batches} record batches instead of 1: partition again"
            )
        batch = reader.get_batch(0)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = str(error).splitlines()[0]
        raise PartitionError(f"{path} cannot be read as an Arrow file ({reason}): partition again") from None
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def as_array(column: Any) -> NDArray[Any]:
    """A column of numbers, none missing, as a read-only view; pyarrow's own conversion would import pandas first."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise TypeError(f"{column.type} is no type of numbers")
    dtype = np.dtype(column.type.to_pandas_dtype())
    if len(column) == 0:
        return np.empty(0, dtype)
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * dtype.itemsize)


def as_tensor(column: Any) -> Tensor:
    """A read-only Arrow column as a tensor [n] or, for lists of fixed size, [n, c]; it must never be written to."""
    if pa.types.is_fixed_size_list(column.type):
        array = as_array(column.flatten()).reshape(len(column), column.type.list_size)
    else:
        array = as_array(column)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def integer_type(largest: int) -> Any:
    """int32 where numbers up to `largest` fit."""
    return np.int32 if largest < 2**31 else np.int64


def _padding(batch: Any) -> int:
    """How much metadata makes the first column's data begin at a multiple of 64 bytes in the file.

    Arrow aligns to 8 bytes and offers no setting; the text of the schema comes before the data, so it can fill up.
    """
    sink = pa.BufferOutputStream()
    _write(batch.slice(0, 1).replace_schema_metadata({"padding": "." * 8}), sink)
    file = sink.getvalue()
    first = pa.ipc.open_file(file).get_batch(0).column(0)
    start: int = next((buffer.address for buffer in first.buffers() if buffer is not None), file.address)
    return 8 + int(file.address - start) % ALIGNMENT


def _write(batch: Any, sink: Any) -> None:
    with pa.ipc.new_file(sink, batch.schema, options=pa.ipc.IpcWriteOptions(allow_64bit=True)) as writer:
        writer.write_batch(batch)
