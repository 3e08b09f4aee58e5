"""Which columns of a table become features and how, by their types and values, unless the user has said it.

Constants come from training nodes alone: what a test node holds changes no other node's features.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.partitioning.sources.feature_rows import SPARSE_DENSITY, joined_rows
from nfdist.scratch import Scratch
from nfdist.store.columns import check_lists, decoded, is_list, is_number, is_text, numbered, to_numbers
from nfdist.store.encoding import category_values, encode, missing_values
from nfdist.store.schema import BOOLEAN, CATEGORY, LIST, NUMBER, TEXT, FeatureColumn
from nfdist.store.table_files import Rows

MOST_CATEGORIES = 1000  # of one column: each has weights of its own, and needs nodes to learn them from
FEW_CATEGORIES = 10  # so few that it does not matter whether values repeat
WORDS_OF_A_TEXT = 3  # on average, or a value is a name
TEXT_WIDTH = 4096  # places for words; scikit-learn's hashing puts some into the same
MANY_MISSING = 0.05  # the share of training nodes without a number from which on the gap itself is a feature
_WORDS_EXPECTED = 20  # of a text, to tell whether rows are sparse
_SAYING = "[columns.NAME] as = ..., or --column NAME=..."
_ROWS_ENOUGH = 10  # to tell that numbers are those of the rows
_ROWS_AT_ONCE = 1 << 16
_INDEXES = ("__index_level_", "Unnamed:")


@dataclass(frozen=True)
class TableFeatures:
    """The columns of a table that may become features, as read; `said` has what the user said of them, by name.

    `chosen` are those that the user listed; `unused` have a reason not to be read.
    """

    rows: Rows
    names: tuple[str, ...]
    ids: Any
    said: Mapping[str, str]
    chosen: tuple[str, ...]
    unused: Mapping[str, str]

    def encoded(
        self, training: NDArray[np.bool_], scratch: Scratch | None = None
    ) -> tuple[Any, tuple[FeatureColumn, ...], dict[str, str]]:
        """Features [n, f], the columns they came from, and why others were left out."""
        basis = training if training.any() else np.ones(len(self.rows), dtype=bool)
        compact = replace(self, rows=Rows(_compact(self.rows.table, self.names), self.rows.counts))
        columns, unused = [], dict(self.unused)
        for name in self.names:
            found = compact._inferred(name, basis)
            if isinstance(found, str):
                unused[name] = found
            else:
                columns.append(found)
        if not columns:
            reasons = "; ".join(f"{name!r} {reason}" for name, reason in list(unused.items())[:5])
            raise PartitionError(
                f"{self.rows.name} has no features ({reasons or 'no other columns'}): add columns, or say how to use "
                f"these ({_SAYING})"
            )
        kinds = [self.rows[column.name].type for column in columns]
        halves = all(pa.types.is_float16(kind.value_type if is_list(kind) else kind) for kind in kinds)
        dtype = np.float16 if halves else np.float32
        encoded = _encode_in_batches(columns, compact.rows, dtype, scratch or Scratch())
        return encoded, tuple(columns), unused

    def _inferred(self, name: str, basis: NDArray[np.bool_]) -> FeatureColumn | str:
        """What becomes of a column: features, or the reason why not."""
        column = self.rows[name]
        use = self.said.get(name) or self._use(name, column)
        if use not in _MAKERS:
            if name in self.chosen:
                raise PartitionError(
                    f"{self.rows.name}: column {name!r} was chosen as a feature and {use}: {_cure(name)}"
                )
            return f"left out: {use}"
        absent = missing_values(column)
        known = basis & ~absent
        if not known.any():
            return "left out: no training node has a value"
        made = _MAKERS[use](self, name, column, known, 1 - np.count_nonzero(known) / np.count_nonzero(basis))
        return made if isinstance(made, str) else replace(made, missing=int(np.count_nonzero(absent)))

    def _use(self, name: str, column: pa.ChunkedArray) -> str:
        """What a column is good for by its name and type, or why it is good for nothing."""
        if name not in self.chosen:
            if name.startswith(_INDEXES):
                return "an index that pandas wrote"
            if pa.types.is_integer(column.type) and _is_row_number(column):
                return "the number of the row"
            if _is_copy(column, self.ids):
                return "a copy of the ids"
        if is_number(column.type):
            return BOOLEAN if pa.types.is_boolean(column.type) else NUMBER
        if is_list(column.type) and is_number(column.type.value_type):
            return LIST
        if is_text(column.type):
            return "words"
        return "without values" if pa.types.is_null(column.type) else f"{column.type} is no kind of feature"

    def _number(self, name: str, column: Any, known: NDArray[np.bool_], gaps: float) -> FeatureColumn:
        if not is_number(column.type):
            raise self._unlike(name, NUMBER, column.type)
        plain = not (pa.types.is_decimal(column.type) or pa.types.is_float16(column.type))
        ends = pc.min_max(column if plain else column.cast(pa.float64())).as_py()
        span = float(ends["min"]), float(ends["max"])
        finite = span if np.isfinite(span).all() else ()  # what is infinite is refused with its row
        encoding = BOOLEAN if pa.types.is_boolean(column.type) else NUMBER
        indicator = bool(gaps >= MANY_MISSING)
        return _column(name, column, encoding, 1 + indicator, indicator=indicator, span=finite)

    def _category(self, name: str, column: Any, known: NDArray[np.bool_], gaps: float) -> FeatureColumn:
        if not (is_text(column.type) or is_number(column.type)):
            raise self._unlike(name, CATEGORY, column.type)
        return self._categories(name, column, _different(category_values(column), known))

    def _categories(self, name: str, column: Any, categories: pa.Array) -> FeatureColumn:
        if len(categories) > MOST_CATEGORIES:
            raise PartitionError(
                f"{self.rows.name}: column {name!r} has {len(categories):,} different values, too many for categories "
                f"(at most {MOST_CATEGORIES:,}): {_cure(name)}"
            )
        names = tuple(categories.sort().to_pylist())
        return _column(name, column, CATEGORY, len(names), categories=names)

    def _list(self, name: str, column: Any, known: NDArray[np.bool_], gaps: float) -> FeatureColumn:
        if not is_list(column.type):
            raise self._unlike(name, LIST, column.type)
        width = check_lists(column, f"{self.rows.name}, column {name!r}")
        if width == 0:
            raise PartitionError(f"{self.rows.name}: the lists of column {name!r} are empty: {_cure(name)}")
        return _column(name, column, LIST, width)

    def _text(self, name: str, column: Any, known: NDArray[np.bool_], gaps: float) -> FeatureColumn:
        if not is_text(column.type):
            raise self._unlike(name, TEXT, column.type)
        return _column(name, column, TEXT, TEXT_WIDTH)

    def _words(self, name: str, column: Any, known: NDArray[np.bool_], gaps: float) -> FeatureColumn | str:
        """A column of words: categories where they repeat, text where they are many, else names of nodes."""
        different, nodes = _different(column, known), int(np.count_nonzero(known))
        if len(different) <= MOST_CATEGORIES and len(different) <= max(FEW_CATEGORIES, nodes // 2):
            return self._categories(name, column, different)
        words = pc.sum(pc.count_substring_regex(different, r"\S+")).as_py()
        if words >= WORDS_OF_A_TEXT * len(different):
            return self._text(name, column, known, gaps)
        if len(different) > MOST_CATEGORIES:
            return self._categories(name, column, different)  # which is refused
        told = f"{len(different):,} different words in {nodes:,} training nodes"
        if name in self.chosen:
            raise PartitionError(
                f"{self.rows.name}: column {name!r} was chosen as a feature and has {told}: {_cure(name)}"
            )
        return f"left out: {told}"

    def _unlike(self, name: str, use: str, kind: Any) -> PartitionError:
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return PartitionError(
            f"{self.rows.name}: column {name!r} cannot be used as a {use}, it holds {kind}: {_cure(name)}"
        )


_MAKERS = {
    NUMBER: TableFeatures._number,
    BOOLEAN: TableFeatures._number,
    CATEGORY: TableFeatures._category,
    LIST: TableFeatures._list,
    TEXT: TableFeatures._text,
    "words": TableFeatures._words,
}


def _column(name: str, column: pa.ChunkedArray, encoding: str, width: int, **constants: Any) -> FeatureColumn:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return FeatureColumn(name, str(kind), encoding, width, **constants)


def _compact(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """A table whose words are stored once each, so that they are compared once."""
    for name in names:
        if is_text(table[name].type):
            column = table[name]
            known = pa.types.is_dictionary(column.type)
            compact = column.unify_dictionaries() if known else decoded(column).dictionary_encode()
            table = table.set_column(table.schema.get_field_index(name), name, compact)
    return table


def _different(column: pa.ChunkedArray, known: NDArray[np.bool_]) -> pa.Array:
    """The different values of some rows."""
    codes, values = numbered(column)
    seen = np.zeros(len(values) + 1, dtype=bool)
    seen[np.where(known, codes, -1)] = True  # the last place is for what is not asked for
    return values.filter(pa.array(seen[:-1]))


def are_sparse(columns: Iterable[FeatureColumn]) -> bool:
    """Whether rows of these columns are mostly zeros."""
    entries = {CATEGORY: 1, TEXT: _WORDS_EXPECTED}
    filled = sum(min(column.width, entries.get(column.encoding, column.width)) for column in columns)
    return filled < SPARSE_DENSITY * sum(column.width for column in columns)


def _is_row_number(column: pa.ChunkedArray) -> bool:
    if column.null_count or len(column) < _ROWS_ENOUGH or column[0].as_py() not in (0, 1):
        return False
    return bool((np.diff(to_numbers(column)) == 1).all())


def _is_copy(column: pa.ChunkedArray, ids: Any) -> bool:
    is_words = isinstance(ids, pa.Array) or ids.dtype == object
    same_kind = is_text(column.type) if is_words else pa.types.is_integer(column.type)
    if not same_kind or column.null_count or len(ids) < _ROWS_ENOUGH or column[0].as_py() != _plain(ids[0]):
        return False
    for start in range(0, len(ids), _ROWS_AT_ONCE):
        cells, some = decoded(column.slice(start, _ROWS_AT_ONCE)), ids[start : start + _ROWS_AT_ONCE]
        if not (
            cells.to_numpy() == (some.to_numpy(zero_copy_only=False) if isinstance(some, pa.Array) else some)
        ).all():
            return False
    return True


def _plain(value: Any) -> Any:
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _encode_in_batches(columns: list[FeatureColumn], rows: Rows, dtype: Any, scratch: Scratch) -> Any:
    """Features [n, f] in `scratch`; a batch of rows is encoded as all of them would be."""
    sparse = are_sparse(columns)
    width = sum(column.width for column in columns)
    batches = (encode(columns, rows.slice(start, _ROWS_AT_ONCE), dtype, sparse) for start in _starts(len(rows)))
    if sparse:
        return joined_rows(batches, width, scratch)
    features = scratch.array((len(rows), width), dtype)
    for start, batch in zip(_starts(len(rows)), batches, strict=True):
        features[start : start + len(batch)] = batch
    return features


def _starts(count: int) -> range:
    return range(0, max(count, 1), _ROWS_AT_ONCE)


def _cure(name: str) -> str:
    return f'say as = "ignore" or another use in a recipe\'s [columns.{name}], or --column {name}=ignore'
