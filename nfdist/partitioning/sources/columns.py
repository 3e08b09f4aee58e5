"""From Arrow columns to arrays: ids, the rows that edges name, features, labels and splits."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.partitioning.sources import splits
from nfdist.partitioning.sources.table_files import Rows
from nfdist.partitioning.sources.validation import check_known, check_same_widths
from nfdist.store.source_graph import UNASSIGNED

_ROWS_AT_ONCE = 1 << 16


def is_list(kind: pa.DataType) -> bool:
    """Whether a column holds a list a row."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether a column holds a number a row."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds a text a row, as such or as the number of one."""
    return _is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def is_empty(kind: pa.DataType) -> bool:
    """Whether nothing is known of a column's type, as of a CSV that begins without values."""
    return bool(pa.types.is_null(kind))


def to_ids(column: pa.ChunkedArray, where: str, name: str, typed: bool) -> NDArray[Any]:
    """Node ids as integers or text; where text has no type of its own, integers if all are spelled as such."""
    column = _decoded(column)
    if column.null_count:
        raise PartitionError(f"{where}: {column.null_count} nodes have no {name!r}: give every node an id")
    if _is_text(column.type):
        if typed:
            return _as_text(column)
        try:
            numbers = column.cast(pa.int64())
        except pa.ArrowInvalid:
            return _as_text(column)
        same = pc.all(pc.equal(numbers.cast(pa.large_string()), column.cast(pa.large_string()))).as_py()
        return _numbers(numbers) if same else _as_text(column)
    if not pa.types.is_integer(column.type):
        raise PartitionError(f"{where}: ids of column {name!r} must be integers or text, got {column.type}")
    return _numbers(column)


def to_rows(
    ends: Sequence[pa.ChunkedArray], ids: NDArray[Any], where: str, id_column: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The rows of the nodes that both columns of edges name."""
    known = pa.array(ids) if ids.dtype.kind in "iu" else pa.array(ids, pa.large_string())
    rows, unknown, count = [], None, 0
    for column in map(_decoded, ends):
        if not (_is_text(column.type) or pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise PartitionError(f"{where}: ends of edges must be integers or text, as ids are, got {column.type}")
        found = pc.index_in(_cast_like(column, known.type), value_set=known)
        if found.null_count:
            missing = pc.is_null(found)
            count += found.null_count
            unknown = unknown if unknown is not None else (column.filter(missing)[0].as_py(),)
        else:
            rows.append(found.to_numpy())
    check_known(where, unknown[0] if unknown else None, count, id_column)
    return rows[0], rows[1]


def to_features(rows: Rows, names: Sequence[str], where: str, ids: NDArray[Any]) -> NDArray[Any]:
    """Features [n, f] of one list column or of many columns of numbers, all of them finite."""
    found = [rows[name] for name in names]
    if len(found) == 1 and is_list(found[0].type):
        features = _stack_lists(found[0], where, ids)
        for row, place in _first_infinite(features):
            value = found[0][row].as_py()[place]
            raise _not_finite(rows, row, f"column {names[0]!r}, entry {place + 1}", value)
        return features
    for name, column in zip(names, found, strict=True):
        if not is_number(column.type):
            raise PartitionError(f"{where}: feature column {name!r} must be numbers, got {column.type}")
    features = np.empty((len(ids), len(found)), _float_of(column.type for column in found))
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused as such
        for index, column in enumerate(found):
            features[:, index] = _numbers(column)
    for row, place in _first_infinite(features):
        raise _not_finite(rows, row, f"column {names[place]!r}", found[place][row].as_py())
    return features


def _first_infinite(features: NDArray[Any]) -> list[tuple[int, int]]:
    """The row and column of the first value that is NaN or infinite, if any."""
    for start in range(0, len(features), _ROWS_AT_ONCE):
        wrong = np.argwhere(~np.isfinite(features[start : start + _ROWS_AT_ONCE]))
        if len(wrong):
            return [(start + int(wrong[0][0]), int(wrong[0][1]))]
    return []


def _not_finite(rows: Rows, row: int, what: str, value: Any) -> PartitionError:
    shown = "missing" if value is None else f"{value!r}"
    return PartitionError(f"{rows.place(row)}, {what} is {shown}: features must be finite in 32 bits, so repair it")


def to_labels(column: pa.ChunkedArray, where: str, notes: list[str]) -> NDArray[Any]:
    """Labels [n], or [n, questions] of a list column; text becomes class numbers in the order of the alphabet."""
    column = _decoded(column)
    if is_list(column.type):
        return _stack_lists(column, where, np.arange(len(column)), np.float32)
    if _is_text(column.type):
        names = pc.unique(column.drop_null()).sort()
        notes.append(f"{len(names)} classes by name: {', '.join(names.slice(0, 100).to_pylist())}")
        return _numbers(pc.fill_null(pc.index_in(column, value_set=names, skip_nulls=True), -1))
    if pa.types.is_null(column.type):
        return np.full(len(column), -1)
    if not is_number(column.type):
        raise PartitionError(f"{where}: labels must be integers, text or lists of 0 and 1, got {column.type}")
    return _numbers(column)


def to_members(column: pa.ChunkedArray, where: str, notes: list[str]) -> dict[int, NDArray[Any]]:
    """The masks of a split column, of words (train, valid, test) or numbers; empty means unassigned."""
    column = _decoded(column)
    if not _is_text(column.type):
        if not pa.types.is_integer(column.type):
            raise PartitionError(f"{where}: a split column must hold train, valid or test, got {column.type}")
        notes.append(splits.CODES_NOTE)
        return splits.from_codes(pc.fill_null(column, UNASSIGNED).to_numpy(), where)
    codes = np.full(len(column), UNASSIGNED, np.int8)
    for word in pc.unique(column.drop_null()).to_pylist():
        if word and word not in splits.WORDS and word != "unassigned":
            raise PartitionError(f"{where}: split {word!r} is unknown: use train, valid, test or nothing")
        codes[pc.fill_null(pc.equal(column, word), False).to_numpy()] = splits.WORDS.get(word, UNASSIGNED)
    return splits.from_codes(codes, where)


def to_mask(column: pa.ChunkedArray, where: str, name: str) -> NDArray[np.bool_]:
    """A mask of booleans or of zeros and ones; empty means no."""
    if not (pa.types.is_boolean(column.type) or pa.types.is_integer(column.type)):
        raise PartitionError(f"{where}: mask {name!r} must be true or false, got {column.type}")
    return splits.as_mask(_numbers(pc.fill_null(column, pa.scalar(0).cast(column.type))), f"{where}: mask {name!r}")


def _stack_lists(column: pa.ChunkedArray, where: str, ids: NDArray[Any], dtype: Any = None) -> NDArray[Any]:
    """A list column as [n, width], chunk by chunk."""
    widths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    width = int(widths[0])
    check_same_widths(where, widths, width, ids)
    inner = column.type.value_type
    if not is_number(inner):
        raise PartitionError(f"{where}: lists must hold numbers, got {inner}")
    stacked = np.empty((len(column), width), dtype or _float_of([inner]))
    start = 0
    with np.errstate(over="ignore"):
        for chunk in column.chunks:
            # flatten() respects slices, where .values would not.
            stacked[start : start + len(chunk)] = _numbers(chunk.flatten()).reshape(len(chunk), width)
            start += len(chunk)
    return stacked


def _numbers(column: Any) -> NDArray[Any]:
    """Numbers with NaN for what is missing."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    numbers: NDArray[Any] = (
        column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(zero_copy_only=False)
    )
    return numbers


def _float_of(kinds: Any) -> Any:
    return np.float16 if all(pa.types.is_float16(kind) for kind in kinds) else np.float32


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == getattr(pa, "string_view", str)())


def _as_text(column: pa.ChunkedArray) -> NDArray[Any]:
    # As objects: numpy's own texts would all be as wide as the longest.
    return np.asarray(column.to_numpy(), dtype=np.object_)


def _cast_like(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Ends of edges in the type of the ids; what has no such value becomes null, so unknown."""
    if not pa.types.is_floating(column.type) or _is_text(kind):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            pass
    # Some value is no such number: compare the others by their spelling or, for numbers, where they are whole.
    if _is_text(column.type):
        whole = pc.match_substring_regex(column, r"^-?[0-9]{1,18}$")
    else:  # floats beyond 2^53 stand for several integers
        whole = pc.and_(pc.equal(pc.floor(column), column), pc.less_equal(pc.abs(column), 2.0**53))
    return pc.if_else(whole, column, pa.scalar(None, column.type)).cast(kind)
