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
from nfdist.store.gate import CURE, Column, Gate

ALIGNMENT = 64
METADATA_BYTES = 1 << 16  # at either end of a file; our schemas have a few columns


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


def map_columns(gate: Gate) -> dict[str, Any]:
    """The Arrow arrays of a file of one record batch, as views of the mapped file whose content is still unchecked."""
    size = len(gate.content)
    gate.check(0, min(METADATA_BYTES, size))
    gate.check(max(size - METADATA_BYTES, 0), size)
    try:
        reader = pa.ipc.open_file(pa.py_buffer(gate.content))
        if reader.num_record_batches != 1:
            raise PartitionError(
                f"{gate.path} holds {reader.num_record_batches} record batches instead of 1: partition again"
            )
        batch = reader.get_batch(0)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = str(error).splitlines()[0]
        raise PartitionError(f"{gate.path} cannot be read as an Arrow file ({reason}): {CURE}") from None
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def checked_column(column: Any, gate: Gate) -> Column:
    """A column of `map_columns` behind its gate."""
    return checked_buffer(as_tensor(column), gate)


def checked_buffer(values: Tensor, gate: Gate) -> Column:
    """Numbers that view a mapped file, behind its gate."""
    return Column(values, gate, values.data_ptr() - pa.py_buffer(gate.content).address if len(values) else 0)


def as_array(column: Any) -> NDArray[Any]:
    """A column of numbers, none missing, as a read-only view; pyarrow's own conversion would import pandas first."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise TypeError(f"{column.type} is no type of numbers")
    kind = "f" if pa.types.is_floating(column.type) else "i" if pa.types.is_signed_integer(column.type) else "u"
    dtype = np.dtype(f"{kind}{column.type.bit_width // 8}")  # to_pandas_dtype needs pandas before pyarrow 26
    if len(column) == 0:
        return np.empty(0, dtype)
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * dtype.itemsize)


def as_tensor(column: Any) -> Tensor:
    """A read-only Arrow column as a tensor [n] or, for lists of fixed size, [n, c]; it must never be written to."""
    if pa.types.is_fixed_size_list(column.type):
        return read_only(as_array(column.flatten()).reshape(len(column), column.type.list_size))
    return read_only(as_array(column))


def read_only(array: NDArray[Any]) -> Tensor:
    """A tensor that views an array; neither must ever be written to."""
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
