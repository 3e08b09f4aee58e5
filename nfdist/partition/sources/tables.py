"""A folder with a table of nodes and a table of edges, in Parquet or CSV, each one file or a folder of files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.partition.sources import columns, splits
from nfdist.partition.sources.checking import check_column, check_not_empty, reading
from nfdist.partition.sources.options import SourceOptions
from nfdist.partition.sources.raw import RawSource

_IDS = ("id", "node_id", "original_id", "node")
_LABELS = ("label", "labels", "y")
_SOURCES, _TARGETS = ("source", "src", "from"), ("target", "dst", "to")
_MASKS = {f"{word}_mask": code for word, code in splits.WORDS.items()}


@dataclass(frozen=True)
class Table:
    """The files of one table, all with the same columns."""

    files: tuple[Path, ...]
    schema: pa.Schema

    @property
    def is_csv(self) -> bool:
        return self.files[0].suffix == ".csv"

    def read(self, names: Sequence[str], types: dict[str, pa.DataType] | None = None) -> pa.Table:
        """Some columns of all files; `types` are for CSV, whose values have none of their own."""
        parts = []
        for file in self.files:
            with reading(file):
                parts.append(_read_csv(file, names, types) if self.is_csv else _read_parquet(file, names))
        with reading(self.files[0].parent):
            return pa.concat_tables(parts, promote_options="permissive")

    def pick(self, wanted: str, usual: Sequence[str]) -> str:
        """The column the user named, else the first of the usual names that is there, else nothing."""
        if wanted:
            check_column(str(self.files[0]), wanted, self.schema.names)
            return wanted
        return next((name for name in usual if name in self.schema.names), "")


@dataclass(frozen=True)
class NodeColumns:
    """Which columns of the nodes mean what; an empty name means none."""

    ids: str
    labels: str
    split: str
    masks: tuple[str, ...]
    features: tuple[str, ...]

    @classmethod
    def pick(cls, nodes: Table, options: SourceOptions) -> "NodeColumns":
        ids, labels = nodes.pick(options.id_column, _IDS), nodes.pick(options.label_column, _LABELS)
        split = nodes.pick(options.split_column, ("split",))
        masks = () if split else tuple(name for name in nodes.schema.names if name in _MASKS)
        used = {ids, labels, split, *masks}
        return cls(ids, labels, split, masks, _pick_features(nodes, options.feature_columns, used))

    @property
    def names(self) -> list[str]:
        return [name for name in (self.ids, self.labels, self.split, *self.masks, *self.features) if name]


def open_table(folder: Path, what: str) -> Table:
    """The table of `nodes` or `edges` of a folder; Parquet wins over CSV."""
    for path in (folder / f"{what}.parquet", folder / f"{what}.csv"):
        if path.is_dir():
            # Writers of folders leave notes such as _SUCCESS beside their files.
            files = tuple(sorted(f for f in path.rglob(f"*{path.suffix}") if not f.name.startswith(("_", "."))))
        else:
            files = (path,) if path.exists() else ()
        if files:
            with reading(files[0]):
                return Table(files, _read_schema(files[0]))
    raise PartitionError(f"{folder} has no {what}.parquet or {what}.csv: a graph needs nodes and edges")


def read(folder: Path, name: str, options: SourceOptions) -> RawSource:
    """The graph of a folder of tables; extra columns are dropped with a note."""
    nodes, edges = open_table(folder, "nodes"), open_table(folder, "edges")
    picked = NodeColumns.pick(nodes, options)
    table = nodes.read(picked.names, _csv_types(nodes.schema, picked))
    check_not_empty(name, table.num_rows)
    notes = _note_dropped("node", nodes.schema.names, picked.names)
    where = str(nodes.files[0])
    if picked.ids:
        ids = columns.to_ids(table[picked.ids], where, picked.ids, typed=not nodes.is_csv)
    else:
        ids = np.arange(table.num_rows)
        notes.append("the nodes have no id column: their ids are their row numbers")
    labels = columns.to_labels(table[picked.labels], where, notes) if picked.labels else None
    members = _read_members(table, picked, where, notes)
    features = columns.to_features([table[feature] for feature in picked.features], picked.features, where, ids)
    del table
    sources, targets = _read_edges(edges, ids, picked.ids, options, notes)
    return RawSource(name, sources, targets, features, labels, ids, members, notes=notes)


def _csv_types(schema: pa.Schema, picked: NodeColumns) -> dict[str, pa.DataType]:
    """Types that the first lines of a CSV may not show: fractions and words can come later."""
    types = {name: pa.float64() for name in picked.features if pa.types.is_integer(schema.field(name).type)}
    for name, kind in ((picked.split, pa.string()), (picked.labels, pa.int64())):
        if name and pa.types.is_null(schema.field(name).type):
            types[name] = kind
    # Ids are read as text, or 007 would become 7.
    return {**types, picked.ids: pa.string()} if picked.ids else types


def _read_edges(
    edges: Table, ids: NDArray[Any], id_column: str, options: SourceOptions, notes: list[str]
) -> tuple[NDArray[Any], NDArray[Any]]:
    ends = [edges.pick(options.source_column, _SOURCES), edges.pick(options.target_column, _TARGETS)]
    where = str(edges.files[0])
    if not all(ends):
        have = ", ".join(edges.schema.names)
        raise PartitionError(f"{where} needs columns source and target, or their names in the options; it has {have}")
    notes += _note_dropped("edge", edges.schema.names, ends)
    integers = ids.dtype.kind in "iu"
    try:
        table = edges.read(ends, dict.fromkeys(ends, pa.int64() if integers else pa.string()))
    except PartitionError:
        if not (edges.is_csv and integers):
            raise
        table = edges.read(ends, dict.fromkeys(ends, pa.string()))  # to name the id that is no integer
    return columns.to_rows([table[end] for end in ends], ids, where, id_column)


def _read_members(table: pa.Table, picked: NodeColumns, where: str, notes: list[str]) -> dict[int, NDArray[Any]] | None:
    if picked.split:
        return columns.to_members(table[picked.split], where, notes)
    return {_MASKS[mask]: columns.to_mask(table[mask], where, mask) for mask in picked.masks} or None


def _pick_features(nodes: Table, wanted: tuple[str, ...], used: set[str]) -> tuple[str, ...]:
    where = str(nodes.files[0])
    for name in wanted:
        check_column(where, name, nodes.schema.names)
    if wanted:
        return wanted
    for name in ("features", "feat"):
        if name in nodes.schema.names and columns.is_list(nodes.schema.field(name).type):
            return (name,)
    found = tuple(f.name for f in nodes.schema if f.name not in used and columns.is_number(f.type))
    if not found:
        raise PartitionError(f"{where} has no features: add a list column named features, or columns of numbers")
    return found


def _note_dropped(what: str, names: Sequence[str], used: Sequence[str]) -> list[str]:
    dropped = [name for name in names if name not in used]
    return [f"dropped {what} columns: {', '.join(dropped)}"] if dropped else []


def _read_parquet(file: Path, names: Sequence[str]) -> pa.Table:
    with pyarrow.parquet.ParquetFile(file) as opened:
        for name in names:
            check_column(str(file), name, opened.schema_arrow.names)
        return opened.read(columns=list(names))


def _read_csv(file: Path, names: Sequence[str], types: dict[str, pa.DataType] | None) -> pa.Table:
    options = pyarrow.csv.ConvertOptions(include_columns=list(names), column_types=types, strings_can_be_null=True)
    return pyarrow.csv.read_csv(file, convert_options=options)


def _read_schema(file: Path) -> pa.Schema:
    if file.suffix == ".csv":
        with pyarrow.csv.open_csv(file) as stream:
            return stream.schema
    return pyarrow.parquet.read_schema(file)
