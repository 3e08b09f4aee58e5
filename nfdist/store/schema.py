"""Schema: what the user calls ids, columns and classes, and how each column became features; part of every manifest.

Partitioning makes one, and whatever takes rows afterwards takes them by it: columns are found by name, and encoded with
the constants that are stored here. Filling gaps is the model's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from nfdist.store.json_fields import checked_fields

NUMBER, BOOLEAN, CATEGORY, LIST, TEXT = ENCODINGS = ("number", "boolean", "category", "list", "text")
NEIGHBORS = "neighbors"  # the column of new nodes that lists ids of the graph
EDGE_WEIGHT = "weight"  # the column of edges that says what each weighs
MOST_SHOWN = 100
_MATRIX = "matrix"  # no type of Arrow


@dataclass(frozen=True)
class FeatureColumn:
    """A column of the user's table that became `width` features.

    `categories` are the values that have a feature each; any other value, and none, is "other": zeros. With an
    `indicator` a second feature says that a number is missing. `missing` counts nodes of the graph without a value,
    `span` is the least and the largest number.
    """

    name: str
    type: str
    encoding: str
    width: int
    categories: tuple[str, ...] = ()
    indicator: bool = False
    missing: int = 0
    span: tuple[float, ...] = ()

    @property
    def may_have_gaps(self) -> bool:
        """Whether its first feature is NaN where there is no value; the model fills that."""
        return self.encoding in (NUMBER, BOOLEAN)

    @property
    def use(self) -> str:
        """How it is used, in words."""
        if self.encoding == CATEGORY:
            return f"category of {len(self.categories)}"
        if self.encoding in (LIST, TEXT):
            return f"{self.encoding} of {self.width}"
        return f"{self.encoding} and whether missing" if self.indicator else self.encoding

    @property
    def values(self) -> str:
        """What its values are like."""
        if self.encoding == CATEGORY:
            return ", ".join(self.categories[:3]) + (", ..." if len(self.categories) > 3 else "")
        return " to ".join(f"{end:.6g}" for end in self.span)


@dataclass(frozen=True)
class Schema:
    """`class_names` are those of classes or questions, none where labels are numbers; `unused` columns have a reason.

    `normalize` is "row" where every row of features was divided by its sum.
    """

    columns: tuple[FeatureColumn, ...]
    id_column: str = "id"
    label_column: str = ""
    source_column: str = "source"
    target_column: str = "target"
    class_names: tuple[Any, ...] = ()
    normalize: str = "none"
    unused: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of_matrix(num_features: int, kind: str = "float32", **known: Any) -> "Schema":
        """That of features which have no names: one list a node."""
        return Schema((FeatureColumn("features", f"{_MATRIX} of {kind}", LIST, num_features),), **known)

    @property
    def is_named(self) -> bool:
        """Whether its columns are those of a table."""
        return not any(column.type.startswith(_MATRIX) for column in self.columns)

    @property
    def num_features(self) -> int:
        return sum(column.width for column in self.columns)

    @property
    def gap_features(self) -> list[int]:
        """The features that may be NaN."""
        return [features.start for column, features in self.slices() if column.may_have_gaps]

    def slices(self) -> Iterator[tuple[FeatureColumn, slice]]:
        """Every column with the features that it became."""
        ends = accumulate(column.width for column in self.columns)
        return ((column, slice(end - column.width, end)) for column, end in zip(self.columns, ends, strict=True))

    def names_of(self, numbers: Sequence[int]) -> list[Any]:
        """What the user calls these classes or questions: their own numbers where they have no names."""
        return [self.class_names[number] for number in numbers] if self.class_names else list(numbers)

    def by_class(self, values: Sequence[Any]) -> list[Any] | dict[str, Any]:
        """One value a class or question by its name, a list where they have none.

        One value of two classes is of the question whether it is the second.
        """
        names = self.class_names[1:] if len(values) == 1 and len(self.class_names) == 2 else self.class_names
        named = names and len(names) == len(values)
        return dict(zip(map(str, names), values, strict=True)) if named else list(values)

    def lines(self) -> list[str]:
        """A table of the columns: what each is, how it is used, how many nodes lack it, and its range."""
        rows = [
            (column.name, column.type, column.use, f"{column.missing:,}", column.values)
            for column in self.columns[:MOST_SHOWN]
        ]
        rows += [(name, "", reason, "", "") for name, reason in list(self.unused.items())[:MOST_SHOWN]]
        rows = [("column", "type", "use", "missing", "range"), *rows]
        cut = [[cell if len(cell) <= 40 else f"{cell[:37]}..." for cell in (*row[:2], *row[3:])] for row in rows]
        shown = [[cells[0], cells[1], row[2], *cells[2:]] for cells, row in zip(cut, rows, strict=True)]
        widths = [max(len(row[place]) for row in shown if place != 2 or row[1]) for place in range(5)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in shown]
        more = max(len(self.columns) - MOST_SHOWN, 0) + max(len(self.unused) - MOST_SHOWN, 0)
        return [line.rstrip() for line in lines] + ([f"and {more:,} more columns"] if more else [])


def parsed_schema(content: Any) -> Schema:
    """The schema of a manifest's JSON; ValueError says what is wrong with it."""
    values = checked_fields(content, Schema, "the schema")
    columns = tuple(_parsed_column(entry, number) for number, entry in enumerate(values["columns"]))
    names = tuple(values["class_names"])
    if {type(name) for name in names} not in (set(), {str}, {bool}):
        raise ValueError("class_names must be texts, or true and false")
    if values["normalize"] not in ("none", "row"):
        raise ValueError(f"normalize is {values['normalize']!r:.100}, expected none or row")
    if not all(type(reason) is str for reason in values["unused"].values()):
        raise ValueError("unused columns must have a reason each")
    return Schema(**{**values, "columns": columns, "class_names": names})


def _parsed_column(content: Any, number: int) -> FeatureColumn:
    where = f"feature column {number}"
    values = checked_fields(content, FeatureColumn, where)
    column = FeatureColumn(
        **{**values, "categories": tuple(values["categories"]), "span": tuple(values["span"])}  # JSON has lists
    )
    if column.encoding not in ENCODINGS:
        raise ValueError(f"{where} has the encoding {column.encoding!r:.100}, expected {', '.join(ENCODINGS)}")
    wanted = {NUMBER: 1 + column.indicator, BOOLEAN: 1 + column.indicator, CATEGORY: len(column.categories)}
    if column.width < 1 or column.width != wanted.get(column.encoding, column.width) or column.missing < 0:
        raise ValueError(f"{where} has the width {column.width} and {column.missing} gaps as a {column.encoding}")
    if not all(type(value) is str for value in column.categories):
        raise ValueError(f"{where} has categories that are no text")
    if len(column.span) not in (0, 2) or not all(type(end) in (int, float) for end in column.span):
        raise ValueError(f"{where} has the span {column.span!r:.100}, expected two numbers or none")
    return column
