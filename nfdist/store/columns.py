"""Arrow columns of a user's table: what kind each is, and ids, numbers and lists as arrays."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.scratch import Scratch

_ROWS_AT_ONCE = 1 << 20
_OBJECT_BYTES = 100  # of a text in Python


def is_list(kind: pa.DataType) -> bool:
    """Whether a column holds a list a row."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether a column holds a number a row."""
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return bool(plain or pa.types.is_decimal(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds a text a row, as such or as the number of one."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == getattr(pa, "string_view", str)())


def is_empty(kind: pa.DataType) -> bool:
    """Whether nothing is known of a column's type, as of a CSV that begins without values."""
    return bool(pa.types.is_null(kind))


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of plain values, of which none is stored by a number of its own; views of texts as texts."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    wanted = pa.large_string() if kind == getattr(pa, "string_view", str)() else kind
    return column if wanted == column.type else column.cast(wanted)


def numbered(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], pa.Array]:
    """The number of every row's value among the different ones, -1 where it is null, and these values."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    joined = column.unify_dictionaries().combine_chunks()
    if isinstance(joined, pa.ChunkedArray):  # of no chunks
        return np.empty(0, np.int32), pa.array([], column.type.value_type)
    return pc.fill_null(joined.indices, -1).to_numpy(zero_copy_only=False), joined.dictionary


def to_ids(column: pa.ChunkedArray, where: str, name: str, typed: bool, scratch: Scratch | None = None) -> Any:
    """Ids as integers or text; where text has no type of its own, integers if all are spelled as such.

    Texts without room in the memory of `scratch` are an Arrow array that lies there, others an array of objects.
    """
    column = decoded(column)
    if column.null_count:
        raise PartitionError(f"{where}: {column.null_count} nodes have no {name!r}: give every node an id")
    if not (is_text(column.type) or pa.types.is_integer(column.type)):
        raise PartitionError(f"{where}: ids of column {name!r} must be integers or text, got {column.type}")
    if not is_text(column.type):
        return to_numbers(column)
    numbers = None if typed else spelled_integers(column)
    if numbers is not None:
        return to_numbers(numbers)
    if scratch is not None and not scratch.has_room(_OBJECT_BYTES * len(column)):
        return _joined_texts(lambda: iter(column.chunks), len(column), scratch)
    # Texts as objects: numpy's own would all be as wide as the longest.
    return np.asarray(column.to_numpy(), dtype=np.object_)


def as_ids(original_ids: Any) -> Any:
    """Ids as an Arrow array, of large strings where they are text."""
    if isinstance(original_ids, pa.Array):
        return original_ids
    return pa.array(original_ids) if original_ids.dtype.kind in "iu" else pa.array(original_ids, pa.large_string())


def spelled_integers(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The integers of a column of text if all are spelled as such, so that 007 stays text."""
    found = []
    for chunk in column.chunks:
        try:
            numbers = chunk.cast(pa.int64())
        except pa.ArrowInvalid:
            return None
        if pc.all(pc.equal(numbers.cast(pa.large_string()), chunk.cast(pa.large_string()))).as_py() is False:
            return None
        found.append(numbers)
    return pa.chunked_array(found, pa.int64())


def check_unique(where: str, ids: Any) -> None:
    """Refuse ids that occur twice."""
    repeated = list(repeated_ids(ids, sorting(ids)))
    if repeated:
        raise PartitionError(
            f"{where}: {len(repeated)} node ids occur more than once, the first is {repeated[0].as_py()!s:.100}: "
            "ids must be unique"
        )


def sorting(ids: Any) -> NDArray[np.integer[Any]] | None:
    """Which ids to take for ascending ones, strings by their bytes; None where each is greater than the one before."""
    for start in range(0, len(ids) - 1, _ROWS_AT_ONCE):
        after = ids.slice(start + 1, _ROWS_AT_ONCE)
        if pc.all(pc.less(ids.slice(start, len(after)), after)).as_py() is False:
            order: NDArray[np.integer[Any]] = pc.sort_indices(ids).to_numpy()
            return order
    return None


def repeated_ids(ids: Any, order: NDArray[np.integer[Any]] | None) -> Iterator[Any]:
    """The ids that occur more than once, each once, with what `sorting` gave for them."""
    last = None
    if order is None:
        return
    for start in range(0, len(order) - 1, _ROWS_AT_ONCE):
        some = ids.take(pa.array(order[start : start + _ROWS_AT_ONCE + 1]))
        after = some.slice(1)
        for repeated in after.filter(pc.equal(some.slice(0, len(after)), after)):
            if last is None or repeated != last:
                yield repeated
            last = repeated


def take_ids(ids: Any, rows: NDArray[Any], scratch: Scratch) -> Any:
    """The ids of some rows, in an array that lies in `scratch`; texts have offsets of 64 bits."""
    pieces = [slice(start, start + _ROWS_AT_ONCE) for start in range(0, len(rows), _ROWS_AT_ONCE)]
    if pa.types.is_large_string(ids.type):
        return _joined_texts(lambda: (ids.take(pa.array(rows[piece])) for piece in pieces), len(rows), scratch)
    taken = scratch.array(len(rows), np.int64)
    numbers = ids.to_numpy()
    for piece in pieces:
        taken[piece] = numbers[rows[piece]]
    return pa.array(taken)


def _joined_texts(pieces: Callable[[], Iterator[Any]], count: int, scratch: Scratch) -> Any:
    """So many texts in several arrays, which are asked for twice, as one of large strings that lies in `scratch`."""
    offsets, row = scratch.array(count + 1, np.int64), 0
    for piece in pieces():
        lengths = pc.binary_length(piece).to_numpy()
        offsets[row + 1 : row + 1 + len(piece)] = offsets[row] + np.cumsum(lengths, dtype=np.int64)
        row += len(piece)
    text, row = scratch.array(int(offsets[-1]), np.uint8), 0
    for piece in pieces():
        text[offsets[row] : offsets[row + len(piece)]] = bytes_of(piece.cast(pa.large_string()))
        row += len(piece)
    return pa.Array.from_buffers(pa.large_string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def bytes_of(texts: Any) -> NDArray[np.uint8]:
    """The bytes of an array of large strings, one after another."""
    _, offsets, content = texts.buffers()
    if not len(texts):
        return np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(content or b"", np.uint8)[ends[0] : ends[-1]]


def cast_like(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Names of nodes in the type of the ids; what has no such value becomes null, so unknown."""
    if not pa.types.is_floating(column.type) or is_text(kind):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            pass
    # Some value is no such number: compare the others by their spelling or, for numbers, where they are whole.
    if is_text(column.type):
        whole = pc.match_substring_regex(column, r"^-?[0-9]{1,18}$")
    elif pa.types.is_floating(column.type):  # those beyond 2^53 stand for several integers
        whole = pc.and_(pc.equal(pc.floor(column), column), pc.less_equal(pc.abs(column), 2.0**53))
    else:  # unsigned integers of 64 bits
        whole = pc.less_equal(column, pa.scalar((1 << 63) - 1, column.type))
    return pc.if_else(whole, column, pa.scalar(None, column.type)).cast(kind)


def to_numbers(column: Any) -> NDArray[Any]:
    """Numbers with NaN for what is missing."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    elif pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    numbers: NDArray[Any] = (
        column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(zero_copy_only=False)
    )
    return numbers


def stack_lists(column: pa.ChunkedArray, where: str, width: int | None = None, dtype: Any = None) -> NDArray[Any]:
    """A list column as [n, width], chunk by chunk; without a width, that of its first row."""
    inner, wanted = column.type.value_type, check_lists(column, where, width)
    stacked = np.empty((len(column), wanted), dtype or (np.float16 if pa.types.is_float16(inner) else np.float32))
    start = 0
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused as such
        for chunk in column.chunks:
            # flatten() respects slices, where .values would not.
            stacked[start : start + len(chunk)] = to_numbers(chunk.flatten()).reshape(len(chunk), wanted)
            start += len(chunk)
    return stacked


def check_lists(column: pa.ChunkedArray, where: str, width: int | None = None) -> int:
    """The length of all lists of a column, refused where one has another than the first or `width`."""
    widths = list_lengths(column, where)
    wanted = (int(widths[0]) if len(widths) else 0) if width is None else width
    refuse_ragged(where, *ragged(widths, wanted), wanted)
    return wanted


def list_lengths(column: pa.ChunkedArray, where: str) -> NDArray[Any]:
    """The lengths of all lists, which must hold numbers."""
    inner = column.type.value_type
    if not is_number(inner):
        raise PartitionError(f"{where}: lists must hold numbers, got {inner}")
    lengths: NDArray[Any] = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    return lengths


def ragged(widths: NDArray[Any], wanted: int, before: int = 0) -> tuple[int, str]:
    """How many lists have another length, and the first of these, with so many rows `before` all of them."""
    wrong = np.flatnonzero(widths != wanted)
    return len(wrong), f"row {before + wrong[0] + 1} with {widths[wrong[0]]} values" if len(wrong) else ""


def refuse_ragged(where: str, count: int, first: str, wanted: int) -> None:
    """Refuse what `ragged` found, if anything."""
    if count:
        text = f"{where}: {count} lists are ragged, the first in {first} instead of {wanted}: give all the same length"
        raise PartitionError(text)
