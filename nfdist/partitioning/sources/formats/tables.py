"""tables: a folder with a table of nodes and one of edges, in Parquet or CSV, each one file or a folder of files."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.partitioning.sources import cells, columns, splits
from nfdist.partitioning.sources.formats.source_format import Located, SourceCounts, SourceFormat, register
from nfdist.partitioning.sources.options import NODE_COLUMNS, SourceOptions
from nfdist.partitioning.sources.raw_graph import RawGraph
from nfdist.partitioning.sources.table_files import Rows, Table, open_table
from nfdist.partitioning.sources.validation import check_column, check_not_empty
from nfdist.reading import reading

OPTIONS = (*NODE_COLUMNS, "source_column", "target_column")
_IDS = ("id", "node_id", "original_id", "node")
_LABELS = ("label", "labels", "y")
_SOURCES, _TARGETS = ("source", "src", "from"), ("target", "dst", "to")
_MOST_NAMED = 100
_BYTES_AT_ONCE = 1 << 24
_MASKS = {f"{word}_mask": code for word, code in splits.WORDS.items()}


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
        nodes.check_once(masks)
        used = {ids, labels, split, *masks}
        return cls(ids, labels, split, masks, _pick_features(nodes, options.feature_columns, used))

    @property
    def names(self) -> list[str]:
        return [name for name in (self.ids, self.labels, self.split, *self.masks, *self.features) if name]


def read(folder: Path, name: str, options: SourceOptions) -> RawGraph:
    """The graph of a folder of tables; extra columns are dropped with a note."""
    with reading(folder):  # whatever Arrow cannot convert
        return _read(folder, name, options)


def _read(folder: Path, name: str, options: SourceOptions) -> RawGraph:
    nodes, edges = open_table(folder, "nodes"), open_table(folder, "edges")
    picked = NodeColumns.pick(nodes, options)
    rows = _read_nodes(nodes, picked, options)
    check_not_empty(name, len(rows))
    notes = _note_dropped("node", nodes.schema.names, picked.names)
    where = str(nodes.files[0])
    if picked.ids:
        ids = columns.to_ids(rows[picked.ids], where, picked.ids, typed=not nodes.is_csv)
    else:
        ids = np.arange(len(rows))
        notes.append("the nodes have no id column: their ids are their row numbers")
    labels = columns.to_labels(rows[picked.labels], where, notes) if picked.labels else None
    members = _read_members(rows, picked, where, notes)
    features = columns.to_features(rows, picked.features, where, ids)
    del rows
    sources, targets = _read_edges(edges, ids, picked.ids, options, notes)
    return RawGraph(name, sources, targets, features, labels, ids, members, notes=notes)


def count(folder: Path, options: SourceOptions) -> SourceCounts:
    """The counts of a folder of tables, from the footers of Parquet and the lines of CSV."""
    nodes, edges = open_table(folder, "nodes"), open_table(folder, "edges")
    picked = NodeColumns.pick(nodes, options).features
    kinds = [nodes.schema.field(name).type for name in picked]
    halves = all(pa.types.is_float16(kind.value_type if columns.is_list(kind) else kind) for kind in kinds)
    width = _list_width(nodes, picked[0]) if columns.is_list(kinds[0]) else len(picked)
    return SourceCounts(_count_rows(nodes), _count_rows(edges), width, None, "float16" if halves else "float32")


def _read_nodes(nodes: Table, picked: NodeColumns, options: SourceOptions) -> Rows:
    """The columns in use; a cell that is no number is looked for where it would spoil a column of features."""
    if options.feature_columns:
        texts = [name for name in picked.features if columns.is_text(nodes.schema.field(name).type)]
        cells.refuse_words(nodes, texts)
    elif not columns.is_list(nodes.schema.field(picked.features[0]).type):
        used, counted = set(picked.names), Counter(nodes.schema.names)
        others = [field for field in nodes.schema if field.name not in used and counted[field.name] == 1]
        texts = [field.name for field in others if columns.is_text(field.type) or columns.is_empty(field.type)]
        cells.refuse_spoiled(nodes, texts)
    if picked.labels and nodes.is_csv and columns.is_text(nodes.schema.field(picked.labels).type):
        cells.refuse_spoiled(nodes, [picked.labels], "write all labels as numbers or none")
    try:
        return nodes.read(picked.names, _csv_types(nodes.schema, picked))
    except PartitionError:
        if nodes.is_csv:
            cells.refuse_words(nodes, picked.features)
        raise


def _csv_types(schema: pa.Schema, picked: NodeColumns) -> dict[str, pa.DataType]:
    """Types that the first lines of a CSV may not show: fractions and words can come later."""
    kinds = {name: schema.field(name).type for name in picked.features}
    types = {name: pa.float64() for name, kind in kinds.items() if columns.is_number(kind) and kind != pa.bool_()}
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


def _read_members(table: Rows, picked: NodeColumns, where: str, notes: list[str]) -> dict[int, NDArray[Any]] | None:
    if picked.split:
        return columns.to_members(table[picked.split], where, notes)
    return {_MASKS[mask]: columns.to_mask(table[mask], where, mask) for mask in picked.masks} or None


def _pick_features(nodes: Table, wanted: tuple[str, ...], used: set[str]) -> tuple[str, ...]:
    where = str(nodes.files[0])
    for name in wanted:
        check_column(where, name, nodes.schema.names)
    found = wanted
    for name in ("features", "feat"):
        if not found and name in nodes.schema.names:
            nodes.check_once([name])
            found = (name,) if columns.is_list(nodes.schema.field(name).type) else ()
    found = found or tuple(f.name for f in nodes.schema if f.name not in used and columns.is_number(f.type))
    if not found:
        raise PartitionError(f"{where} has no features: add a list column named features, or columns of numbers")
    nodes.check_once(found)
    return found


def _note_dropped(what: str, names: Sequence[str], used: Sequence[str]) -> list[str]:
    known = set(used)
    dropped = [name for name in names if name not in known]
    more = f" and {len(dropped) - _MOST_NAMED:,} more" if len(dropped) > _MOST_NAMED else ""
    return [f"dropped {what} columns: {', '.join(dropped[:_MOST_NAMED])}{more}"] if dropped else []


def _list_width(nodes: Table, name: str) -> int:
    """The length of the first row's list, for which one small batch is read."""
    kind = nodes.schema.field(name).type
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    with reading(nodes.files[0]), pyarrow.parquet.ParquetFile(nodes.files[0]) as opened:
        batch = next(opened.iter_batches(batch_size=1, columns=[name]), None)
        return len(batch.column(0)[0]) if batch is not None and batch.num_rows else 0


def _count_rows(table: Table) -> int:
    if not table.is_csv:
        total = 0
        for file in table.files:
            with reading(file):
                total += pyarrow.parquet.read_metadata(file).num_rows
        return total
    return sum(max(_count_lines(file) - 1, 0) for file in table.files)


def _count_lines(file: Path) -> int:
    lines, last = 0, b"\n"
    with reading(file), file.open("rb") as stream:
        while block := stream.read(_BYTES_AT_ONCE):
            lines += block.count(b"\n")
            last = block[-1:]
    return lines + (last != b"\n")


def find(name: str, folder: Path | None) -> Located | None:
    """The tables of a dataset in the data folder."""
    return Located(name, FORMAT, folder / name) if folder is not None and recognize(folder / name) else None


def recognize(path: Path) -> bool:
    """Whether a folder has nodes or edges; the reader says which of the two is missing."""
    return any((path / f"{what}{suffix}").exists() for what in ("nodes", "edges") for suffix in (".parquet", ".csv"))


FORMAT = register(SourceFormat("tables", 30, read, count, recognize, "a folder of tables", find, options=OPTIONS))
