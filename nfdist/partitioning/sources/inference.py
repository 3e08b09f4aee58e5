"""Which columns of a table become features and how, by their types and values, unless the user has said it.

Constants come from training nodes alone: what a test node holds changes no other node's features.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from nfdist.collectives import alike, least, tally, total
from nfdist.errors import PartitionError
from nfdist.partitioning.sources.different_values import DifferentValues, different_values
from nfdist.partitioning.sources.feature_rows import SPARSE_DENSITY, joined_rows
from nfdist.partitioning.sources.first_wrong import first_wrong
from nfdist.scratch import Scratch
from nfdist.store.columns import (
    decoded,
    is_list,
    is_number,
    is_text,
    list_lengths,
    numbered,
    ragged,
    refuse_ragged,
    to_numbers,
)
from nfdist.store.encoding import category_values, encode, missing_values
from nfdist.store.row_shares import RowShares
from nfdist.store.schema import BOOLEAN, CATEGORY, LIST, NUMBER, TEXT, FeatureColumn
from nfdist.store.table_files import Rows
from nfdist.world import World

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

    `chosen` are those that the user listed; `unused` have a reason not to be read. Of a world of several ranks each has
    the rows of its `shares`, and every rank must call what follows.
    """

    rows: Rows
    names: tuple[str, ...]
    ids: Any
    said: Mapping[str, str]
    chosen: tuple[str, ...]
    unused: Mapping[str, str]
    shares: RowShares | None = None

    @property
    def world(self) -> World:
        return World() if self.shares is None else self.shares.world

    def encoded(
        self, training: NDArray[np.bool_], scratch: Scratch | None = None
    ) -> tuple[Any, tuple[FeatureColumn, ...], dict[str, str]]:
        """Features [n, f], the columns they came from, and why others were left out; `training` is of all rows."""
        basis = training if training.any() else np.ones(len(training), dtype=bool)
        basis = basis if self.shares is None else basis[self.shares.own]
        compact = replace(self, rows=replace(self.rows, table=_compact(self.rows.table, self.names)))
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
        encoded = alike(self.world, lambda: _encode_in_batches(columns, compact.rows, dtype, scratch or Scratch()))
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
        num_known, num_basis, num_absent = self._total(*map(np.count_nonzero, (known, basis, absent)))
        if not num_known:
            return "left out: no training node has a value"
        made = _MAKERS[use](self, name, column, known, 1 - num_known / num_basis)
        return made if isinstance(made, str) else replace(made, missing=num_absent)

    def _total(self, *counts: Any) -> list[int]:
        """The sums over all ranks."""
        return [int(count) for count in total(self.world, torch.tensor(list(map(int, counts))), "counts")]

    def _all(self, holds: bool) -> bool:
        """Whether something holds for the rows of all ranks."""
        return bool(least(self.world, torch.tensor([holds]).byte(), "types"))

    def _use(self, name: str, column: pa.ChunkedArray) -> str:
        """What a column is good for by its name and type, or why it is good for nothing."""
        if name not in self.chosen:
            if name.startswith(_INDEXES):
                return "an index that pandas wrote"
            num_rows, first = self._total(len(column))[0], self.rows.first
            numbers = pa.types.is_integer(column.type) and num_rows >= _ROWS_ENOUGH
            if numbers and any(self._all(_are_row_numbers(column, first + start)) for start in (0, 1)):
                return "the number of the row"
            if num_rows >= _ROWS_ENOUGH and self._all(_is_copy(column, self.ids[first : first + len(column)])):
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
        # A share without values has none, and one without numbers NaN.
        low, high = (float("nan") if ends[end] is None else float(ends[end]) for end in ("min", "max"))
        span = torch.tensor([low, -high], dtype=torch.float64).nan_to_num(np.inf, np.inf, -np.inf)
        low, high = least(self.world, span, "span").tolist()
        finite = (low, -high) if np.isfinite([low, high]).all() else ()  # what is infinite is refused with its row
        encoding = BOOLEAN if pa.types.is_boolean(column.type) else NUMBER
        indicator = bool(gaps >= MANY_MISSING)
        return _column(name, column, encoding, 1 + indicator, indicator=indicator, span=finite)

    def _category(self, name: str, column: Any, known: NDArray[np.bool_], gaps: float) -> FeatureColumn:
        if not (is_text(column.type) or is_number(column.type)):
            raise self._unlike(name, CATEGORY, column.type)
        return self._categories(name, column, self._different(category_values(column), known))

    def _categories(self, name: str, column: Any, different: DifferentValues) -> FeatureColumn:
        if different.count > MOST_CATEGORIES:
            raise PartitionError(
                f"{self.rows.name}: column {name!r} has {different.count:,} different values, too many for categories "
                f"(at most {MOST_CATEGORIES:,}): {_cure(name)}"
            )
        names = tuple(different.values.sort().to_pylist())
        return _column(name, column, CATEGORY, len(names), categories=names)

    def _different(self, column: pa.ChunkedArray, known: NDArray[np.bool_]) -> DifferentValues:
        """The different values of some rows."""
        return different_values(self.world, _different(column, known), MOST_CATEGORIES)

    def _list(self, name: str, column: Any, known: NDArray[np.bool_], gaps: float) -> FeatureColumn:
        if not is_list(column.type):
            raise self._unlike(name, LIST, column.type)
        width = self._width(column, f"{self.rows.name}, column {name!r}")
        if width == 0:
            raise PartitionError(f"{self.rows.name}: the lists of column {name!r} are empty: {_cure(name)}")
        return _column(name, column, LIST, width)

    def _width(self, column: Any, where: str) -> int:
        """The length of all lists, that of the first one."""
        widths = list_lengths(column, where)
        firsts = tally(self.world, torch.tensor([len(widths), *widths[:1], 0][:2]), "widths").tolist()
        wanted = next((width for count, width in firsts if count), 0)
        refuse_ragged(where, *first_wrong(self.world, *ragged(widths, wanted, self.rows.first)), wanted)
        return int(wanted)

    def _text(self, name: str, column: Any, known: NDArray[np.bool_], gaps: float) -> FeatureColumn:
        if not is_text(column.type):
            raise self._unlike(name, TEXT, column.type)
        return _column(name, column, TEXT, TEXT_WIDTH)

    def _words(self, name: str, column: Any, known: NDArray[np.bool_], gaps: float) -> FeatureColumn | str:
        """A column of words: categories where they repeat, text where they are many, else names of nodes."""
        different, nodes = self._different(column, known), self._total(np.count_nonzero(known))[0]
        if different.count <= MOST_CATEGORIES and different.count <= max(FEW_CATEGORIES, nodes // 2):
            return self._categories(name, column, different)
        if different.words >= WORDS_OF_A_TEXT * different.count:
            return self._text(name, column, known, gaps)
        if different.count > MOST_CATEGORIES:
            return self._categories(name, column, different)  # which is refused
        told = f"{different.count:,} different words in {nodes:,} training nodes"
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


def _are_row_numbers(column: pa.ChunkedArray, first: int) -> bool:
    """Whether these are the numbers from `first` on."""
    return not column.null_count and bool((to_numbers(column) == np.arange(first, first + len(column))).all())


def _is_copy(column: pa.ChunkedArray, ids: Any) -> bool:
    is_words = isinstance(ids, pa.Array) or ids.dtype == object
    same_kind = is_text(column.type) if is_words else pa.types.is_integer(column.type)
    if not same_kind or column.null_count or len(column) != len(ids):
        return False
    if len(ids) and column[0].as_py() != _plain(ids[0]):
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
