"""Columns of one CSV file; a cell that cannot be read as what it should be is refused with its row and column."""

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from nfdist.errors import PartitionError
from nfdist.store.columns import is_text

_CONVERSION = "CSV conversion error"
_WRONG_CELL = re.compile(rf"Row #(\d+): {_CONVERSION} to [^:]*: invalid value '(.*)'\Z", re.DOTALL)
_NOT_UTF8 = re.compile(rf"Row #(\d+): {_CONVERSION} to [^:]*: invalid UTF8")
_SAVE = "save the file as UTF-8"
_REPLACED = "\N{REPLACEMENT CHARACTER}"  # what Arrow's messages have for bytes that are no UTF-8
_SHOWN_CHARACTERS = 60


def read_schema(file: Path) -> pa.Schema:
    """The columns of a file, and their types by its first lines."""
    with file.open("rb") as start:
        if start.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise PartitionError(f"{file} is UTF-16, not UTF-8: {_SAVE}")
    with pyarrow.csv.open_csv(file) as stream:
        schema = stream.schema
    try:
        _ = schema.names
    except UnicodeDecodeError as error:
        raise PartitionError(f"{file}: the names of its columns are not UTF-8: {_SAVE}") from error
    return schema


def read_columns(
    file: Path, names: Sequence[str], types: Mapping[str, pa.DataType] | None = None, verbatim: Sequence[str] = ()
) -> pa.Table:
    """Some columns; NA, null and the like are missing values, except in `verbatim` columns, where they are words."""
    options = _options(names, types)
    try:
        table = pyarrow.csv.read_csv(file, convert_options=options)
    except pa.ArrowInvalid as error:
        _refuse_cells(file, error, names, types)
        raise
    _refuse_bytes(file, table.schema)
    return _with_gaps(table, options, verbatim)


def read_types(file: Path, names: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> dict[str, Any]:
    """What `read_columns` reads the columns as: a type that the first lines suggest may not be that of all lines."""
    options = _options(names, types)
    with pyarrow.csv.open_csv(file, convert_options=options) as stream:
        kinds = dict(zip(stream.schema.names, stream.schema.types, strict=True))
    for name, kind in kinds.items():
        if name not in (types or {}) and not is_text(kind):
            kinds[name] = read_columns(file, [name]).schema.field(name).type
    return kinds


def read_batches(
    file: Path, names: Sequence[str], types: Mapping[str, pa.DataType], verbatim: Sequence[str] = ()
) -> Iterator[Any]:
    """`read_columns` in batches, with a type for every column."""
    options = _options(names, types)
    try:
        with pyarrow.csv.open_csv(file, convert_options=options) as stream:
            for batch in stream:
                _refuse_bytes(file, batch.schema)
                yield from _with_gaps(pa.Table.from_batches([batch]), options, verbatim).to_batches()
    except pa.ArrowInvalid as error:
        _refuse_cells(file, error, names, types)
        raise


def _with_gaps(table: pa.Table, options: Any, verbatim: Sequence[str]) -> pa.Table:
    """Columns of text without NA and the like, which stand for no value."""
    absent = pa.array(options.null_values, pa.string())
    for place, name in enumerate(table.column_names):
        column = table.column(place)
        if is_text(column.type) and name not in verbatim:
            words = pc.if_else(pc.is_in(column, value_set=absent), pa.scalar(None, column.type), column)
            table = table.set_column(place, name, words)
    return table


def read_text(file: Path, names: Sequence[str]) -> Iterator[Any]:
    """Some columns as text, batch by batch; an empty cell is a missing value."""
    types = dict.fromkeys(names, pa.string())
    options = _options(names, types)
    options.strings_can_be_null = True
    try:
        with pyarrow.csv.open_csv(file, convert_options=options) as stream:
            yield from stream
    except pa.ArrowInvalid as error:
        _refuse_cells(file, error, names, types)
        raise


def read_first_rows(file: Path, names: Sequence[str]) -> pa.Table:
    """Some columns of the first lines."""
    with pyarrow.csv.open_csv(file, convert_options=_options(names, None)) as stream:
        table = pa.Table.from_batches([stream.read_next_batch()])
    _refuse_bytes(file, table.schema)
    return table


def _options(names: Sequence[str], types: Mapping[str, pa.DataType] | None) -> Any:
    return pyarrow.csv.ConvertOptions(include_columns=list(names), column_types=dict(types or {}))


def _refuse_bytes(file: Path, schema: pa.Schema) -> None:
    """Refuse columns of which Arrow makes bytes, since they are no UTF-8: a CSV has no others."""
    for field in schema:
        if pa.types.is_binary(field.type):
            _refuse_cell(file, field.name, pa.string())


def _refuse_cells(file: Path, error: Exception, names: Sequence[str], types: Mapping[str, pa.DataType] | None) -> None:
    """Refuse the cell that an error of Arrow is about, if it is about one."""
    if _CONVERSION in str(error):
        for name in names:
            if types and name in types:
                _refuse_cell(file, name, types[name])


def _refuse_cell(file: Path, name: str, kind: pa.DataType) -> None:
    """Refuse the first cell of a column that is not of its type, if there is one."""
    serial = pyarrow.csv.ReadOptions(use_threads=False)  # or Arrow would not say which row it is
    try:
        pyarrow.csv.read_csv(file, read_options=serial, convert_options=_options([name], {name: kind}))
    except pa.ArrowInvalid as error:
        if found := _NOT_UTF8.search(str(error)):
            text = f"{_place(file, found[1], name)} is not UTF-8: {_SAVE}"
        elif found := _WRONG_CELL.search(str(error)):
            if _REPLACED in found[2]:
                _refuse_cell(file, name, pa.string())
            text = f"{_place(file, found[1], name)} is {found[2][:_SHOWN_CHARACTERS]!r}, {_unlike(kind)}: repair it"
        else:
            return
        raise PartitionError(text) from error


def _place(file: Path, row: str, name: str) -> str:
    return f"{file}: row {int(row) - 1}, column {name!r}"  # the row of names is Arrow's first


def _unlike(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return "neither true nor false"
    return "no integer of 64 bits" if pa.types.is_integer(kind) else "no number"
