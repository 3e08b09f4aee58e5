"""From Arrow columns to arrays: weights, labels and splits."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.partitioning.sources import splits
from nfdist.store.columns import decoded, is_list, is_number, is_text, stack_lists, to_numbers
from nfdist.store.source_graph import UNASSIGNED


def to_weights(column: pa.ChunkedArray, where: str) -> NDArray[Any]:
    """What every edge weighs, NaN where that is missing."""
    column = decoded(column)
    if not is_number(column.type):
        raise PartitionError(f"{where}: edge weights must be numbers, got {column.type}: or name the column otherwise")
    return to_numbers(column)


def to_labels(column: pa.ChunkedArray, where: str, name: str) -> tuple[NDArray[Any], tuple[Any, ...]]:
    """Labels [n], or [n, questions] of a list column, and the names of classes, in the order of the alphabet."""
    column = decoded(column)
    if len(column) and column.null_count == len(column):
        raise PartitionError(f"{where}: all labels are missing in column {name!r}: fill it in, or name another")
    if is_list(column.type):
        return stack_lists(column, f"{where}, column {name!r}", dtype=np.float32), ()
    if is_text(column.type):
        names = pc.unique(column.drop_null()).sort()
        numbers = pc.fill_null(pc.index_in(column, value_set=names, skip_nulls=True), -1)
        return to_numbers(numbers), tuple(names.to_pylist())
    if not is_number(column.type) or pa.types.is_decimal(column.type):
        raise PartitionError(f"{where}: labels must be integers, text or lists of 0 and 1, got {column.type}")
    if pa.types.is_boolean(column.type):
        return to_numbers(pc.fill_null(column.cast(pa.int8()), -1)), (False, True)
    return to_numbers(column), ()


def to_members(column: pa.ChunkedArray, where: str, notes: list[str]) -> dict[int, NDArray[Any]]:
    """The masks of a split column, of words (train, valid, test) or numbers; empty means unassigned."""
    column = decoded(column)
    if not is_text(column.type):
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
    return splits.as_mask(to_numbers(pc.fill_null(column, pa.scalar(0).cast(column.type))), f"{where}: mask {name!r}")
