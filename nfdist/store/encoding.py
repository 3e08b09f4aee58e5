"""From columns of a table to rows of features, by the constants of a schema: for the graph's own nodes and new ones."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.store.columns import decoded, is_list, is_number, is_text, numbered, stack_lists, to_numbers
from nfdist.store.schema import BOOLEAN, CATEGORY, LIST, NUMBER, TEXT, FeatureColumn
from nfdist.store.table_files import Rows

_ROWS_AT_ONCE = 1 << 16


def encode(columns: Sequence[FeatureColumn], rows: Rows, dtype: Any, sparse: bool) -> Any:
    """Features [n, f] of the rows of a table, dense or as a CSR array; NaN is where a number or boolean is missing."""
    if sparse:
        grouped = [list(group) for _, group in groupby(columns, lambda column: column.encoding == TEXT)]
        blocks = [_sparse_block(group, rows, dtype) for group in grouped]
        return blocks[0] if len(blocks) == 1 else scipy.sparse.csr_array(scipy.sparse.hstack(blocks, format="csr"))
    if len(columns) == 1 and columns[0].encoding == LIST:
        return _lists(columns[0], rows, dtype)
    features = np.zeros((len(rows), sum(column.width for column in columns)), dtype)
    start = 0
    for column in columns:
        _ENCODERS[column.encoding](column, rows, features[:, start : start + column.width])
        start += column.width
    return features


def category_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a category as texts, null where there is none: numbers as they are written in any file."""
    if is_text(column.type):
        return column
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        # Integers of which some are missing are whole numbers to pandas. Each is judged by itself: no other row, which
        # may be in another batch or with another rank, changes how it is written.
        whole = pc.and_(pc.equal(pc.floor(column), column), pc.less(pc.abs(column), 2.0**63))
        integers = pc.if_else(whole, column, 0.0).cast(pa.int64()).cast(pa.string())
        return pc.if_else(whole, integers, column.cast(pa.string()))
    return column.cast(pa.string())


def missing_values(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Which rows have no value: null or, as pandas has it, NaN; for texts, an empty one too."""
    if is_text(column.type):
        codes, values = numbered(column)
        return np.append(pc.equal(values, "").to_numpy(zero_copy_only=False), True)[codes]
    absent: NDArray[np.bool_] = pc.is_null(column, nan_is_null=pa.types.is_floating(column.type)).to_numpy()
    return absent


def csv_type(column: FeatureColumn) -> pa.DataType:
    """What a CSV's cells of a column are to be read as, to be what they are in other files."""
    if column.encoding == BOOLEAN or column.type == "bool":
        return pa.bool_()
    words = column.encoding == TEXT or column.type in ("string", "large_string") or "dictionary" in column.type
    return pa.string() if words else pa.float64()


def normalize_rows(features: Any) -> Any:
    """Every row divided by the sum of its absolute values; rows of zeros stay, and those without a sum become NaN."""
    if scipy.sparse.issparse(features):
        scale = _inverse(np.asarray(abs(features).sum(axis=1), dtype=np.float32))
        features.data *= np.repeat(scale, np.diff(features.indptr))
        return features
    normalized = features if features.flags.writeable else features.copy()
    for start in range(0, len(features), _ROWS_AT_ONCE):
        rows = normalized[start : start + _ROWS_AT_ONCE]
        rows[:] = rows * _inverse(np.abs(rows).sum(axis=1, dtype=np.float32))[:, None]
    return normalized


def _inverse(sums: Any) -> Any:
    # A sum that overflows would make its row zeros; NaN is refused.
    return np.divide(1, np.where(np.isinf(sums), np.nan, sums), out=np.ones_like(sums), where=sums > 0)


def _numbers(column: FeatureColumn, rows: Rows, out: NDArray[Any]) -> None:
    values = decoded(rows[column.name])
    if not (is_number(values.type) or pa.types.is_null(values.type)):
        raise _unlike(column, rows, "numbers" if column.encoding == NUMBER else "true or false", values.type)
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused as such
        out[:, 0] = np.nan if pa.types.is_null(values.type) else to_numbers(values)
    for row in _first(np.isinf(out[:, 0])):
        raise _not_finite(rows, row, f"column {column.name!r}", values[row].as_py())
    if column.encoding == BOOLEAN and not pa.types.is_boolean(values.type):
        for row in _first((out[:, 0] != 0) & (out[:, 0] != 1) & ~np.isnan(out[:, 0])):
            raise PartitionError(f"{rows.place(row)}, column {column.name!r} is {values[row].as_py()!r}: give 0 or 1")
    if column.indicator:
        out[:, 1] = np.isnan(out[:, 0])


def _categories(column: FeatureColumn, rows: Rows, out: NDArray[Any]) -> None:
    codes = _codes(column, rows)
    known = np.flatnonzero(codes >= 0)
    out[known, codes[known]] = 1


def _codes(column: FeatureColumn, rows: Rows) -> NDArray[Any]:
    """The place of every row's value among the categories, -1 for other."""
    given = rows[column.name]
    if not (is_text(given.type) or is_number(given.type) or pa.types.is_null(given.type)):
        raise _unlike(column, rows, "categories", given.type)
    if pa.types.is_null(given.type):
        return np.full(len(given), -1)
    codes, values = numbered(category_values(given))
    known = pa.array(column.categories, values.type)
    places = pc.fill_null(pc.index_in(values, value_set=known, skip_nulls=True), -1).to_numpy(zero_copy_only=False)
    return np.append(places, np.int32(-1))[codes]


def _lists(column: FeatureColumn, rows: Rows, dtype: Any) -> NDArray[Any]:
    values = rows[column.name]
    if not is_list(values.type):
        raise _unlike(column, rows, "lists of numbers", values.type)
    features = stack_lists(values, f"{rows.name}, column {column.name!r}", column.width, dtype)
    for start in range(0, len(features), _ROWS_AT_ONCE):
        for row, place in np.argwhere(~np.isfinite(features[start : start + _ROWS_AT_ONCE]))[:1].tolist():
            value = values[start + row].as_py()[place]
            raise _not_finite(rows, start + row, f"column {column.name!r}, entry {place + 1}", value)
    return features


def _list_columns(column: FeatureColumn, rows: Rows, out: NDArray[Any]) -> None:
    out[:] = _lists(column, rows, out.dtype)


def _texts(column: FeatureColumn, rows: Rows, out: NDArray[Any]) -> None:
    out[:] = _word_counts(column, rows).toarray()


def _word_counts(column: FeatureColumn, rows: Rows) -> Any:
    """How often every word occurs, words in as many places as the column is wide (scikit-learn's hashing)."""
    from sklearn.feature_extraction.text import HashingVectorizer  # imported late: it takes a second

    values = decoded(rows[column.name])
    if not (is_text(values.type) or pa.types.is_null(values.type)):
        raise _unlike(column, rows, "text", values.type)
    texts = pc.fill_null(values.cast(pa.large_string()), "")
    hashing = HashingVectorizer(n_features=column.width, alternate_sign=False, norm=None, dtype=np.float32)
    parts = [hashing.transform(chunk.to_pylist()) for chunk in texts.chunks]
    counts = scipy.sparse.vstack(parts, format="csr") if parts else scipy.sparse.csr_matrix((0, column.width))
    return scipy.sparse.csr_array(counts)


def _sparse_block(columns: Sequence[FeatureColumn], rows: Rows, dtype: Any) -> Any:
    """Some columns as a CSR array: of texts, or of others, which have as many entries in every row, some of them 0."""
    if columns[0].encoding == TEXT:
        blocks = [_word_counts(column, rows) for column in columns]
        return blocks[0] if len(blocks) == 1 else scipy.sparse.csr_array(scipy.sparse.hstack(blocks, format="csr"))
    count = sum(1 if column.encoding == CATEGORY else column.width for column in columns)
    width = sum(column.width for column in columns)
    index_type = np.int32 if max(len(rows) * count, width) < 2**31 else np.int64
    indices, values = np.empty((len(rows), count), index_type), np.empty((len(rows), count), dtype)
    place = start = 0
    for column in columns:
        size = 1 if column.encoding == CATEGORY else column.width
        if column.encoding == CATEGORY:
            codes = _codes(column, rows)
            np.greater_equal(codes, 0, out=values[:, place], casting="unsafe")
            np.maximum(codes, 0, out=codes)
            np.add(codes, index_type(start), out=indices[:, place], casting="same_kind")
        else:
            indices[:, place : place + size] = np.arange(start, start + size)
            _ENCODERS[column.encoding](column, rows, values[:, place : place + size])
        place, start = place + size, start + column.width
    indptr = np.arange(len(rows) + 1, dtype=index_type) * count
    return scipy.sparse.csr_array((values.reshape(-1), indices.reshape(-1), indptr), shape=(len(rows), width))


def check_normalized(features: Any, rows: Rows) -> None:
    """Refuse rows that `normalize_rows` could not divide."""
    per_row = abs(features).sum(axis=1)
    for row in _first(~np.isfinite(np.asarray(per_row, dtype=np.float32))):
        raise PartitionError(f"{rows.place(row)} has gaps or is too large to be normalized: repair it")


def _first(wrong: NDArray[np.bool_]) -> list[int]:
    place = int(np.argmax(wrong)) if len(wrong) else 0
    return [place] if len(wrong) and wrong[place] else []


def _not_finite(rows: Rows, row: int, what: str, value: Any) -> PartitionError:
    shown = "missing" if value is None else f"{value!r}"
    return PartitionError(f"{rows.place(row)}, {what} is {shown}: features must be finite in 32 bits, so repair it")


def _unlike(column: FeatureColumn, rows: Rows, wanted: str, found: Any) -> PartitionError:
    found = found.value_type if pa.types.is_dictionary(found) else found
    return PartitionError(f"{rows.name}: column {column.name!r} must be {wanted}, got {found}: convert it")


_ENCODERS: dict[str, Callable[[FeatureColumn, Rows, NDArray[Any]], None]] = {
    NUMBER: _numbers,
    BOOLEAN: _numbers,
    CATEGORY: _categories,
    LIST: _list_columns,
    TEXT: _texts,
}
