"""tables: a folder with a table of nodes and one of edges, in Parquet or CSV, each one file or a folder of files."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import torch
from numpy.typing import NDArray

from nfdist.collectives import alike, least, together
from nfdist.errors import PartitionError
from nfdist.partitioning.sources import cells, node_columns, splits
from nfdist.partitioning.sources.edge_rows import to_rows
from nfdist.partitioning.sources.feature_rows import keeps_sparse
from nfdist.partitioning.sources.formats.source_format import Located, SourceCounts, SourceFormat, register
from nfdist.partitioning.sources.inference import TableFeatures
from nfdist.partitioning.sources.options import NODE_COLUMNS, SourceOptions
from nfdist.partitioning.sources.raw_graph import NO_EDGES, RawGraph
from nfdist.partitioning.sources.validation import check_not_empty
from nfdist.partitioning.workspace import Workspace
from nfdist.reading import reading
from nfdist.store import csv_files
from nfdist.store.columns import as_ids, is_empty, is_list, is_number, is_text, to_ids
from nfdist.store.gathered import gathered
from nfdist.store.row_shares import RowShares
from nfdist.store.schema import EDGE_WEIGHT
from nfdist.store.table_files import SUFFIXES, Rows, Table, check_column, find_table, open_table
from nfdist.store.table_shares import check_same_files, read_rows
from nfdist.world import World

OPTIONS = (*NODE_COLUMNS, "source_column", "target_column", "columns")
_IDS = ("id", "node_id", "original_id", "node")
_LABELS = ("label", "labels", "y")
_SOURCES, _TARGETS = ("source", "src", "from"), ("target", "dst", "to")
_MOST_NAMED = 100
_BYTES_AT_ONCE = 1 << 24
_ROWS_COUNTED = 10_000
_MASKS = {f"{word}_mask": code for word, code in splits.WORDS.items()}


@dataclass(frozen=True)
class NodeColumns:
    """Which columns of the nodes mean what; an empty name means none, `unused` ones are not read for a reason."""

    ids: str
    labels: str
    split: str
    masks: tuple[str, ...]
    features: tuple[str, ...]
    unused: dict[str, str]

    @classmethod
    def pick(cls, nodes: Table, options: SourceOptions) -> "NodeColumns":
        ids, labels = nodes.pick(options.id_column, _IDS), nodes.pick(options.label_column, _LABELS)
        split = nodes.pick(options.split_column, ("split",))
        masks = () if split else tuple(name for name in nodes.schema.names if name in _MASKS)
        nodes.check_once(masks)
        used = [name for name in (ids, labels, split, *masks) if name]
        return cls(ids, labels, split, masks, *_pick_features(nodes, options, used))

    @property
    def names(self) -> list[str]:
        return [*self.facts, *self.features]

    @property
    def facts(self) -> list[str]:
        """What every rank knows of all nodes."""
        return [name for name in (self.ids, self.labels, self.split, *self.masks) if name]


def read(folder: Path, name: str, options: SourceOptions, workspace: Workspace) -> RawGraph:
    """The graph of a folder of tables."""
    with reading(folder):  # whatever Arrow cannot convert
        return _read(folder, name, options, workspace)


def _read(folder: Path, name: str, options: SourceOptions, workspace: Workspace) -> RawGraph:
    world = workspace.world
    nodes, edges = together(world, lambda: (_open(folder, "nodes"), _open(folder, "edges")), PartitionError)
    check_same_files(world, [*nodes.files, *edges.files])
    picked = NodeColumns.pick(nodes, options)
    rows = _read_nodes(nodes, picked, options, workspace)
    shares = RowShares.of(world, len(rows))
    check_not_empty(name, shares.num_rows)
    whole = gathered(world, rows.table.select(picked.facts), workspace.scratch)
    notes: list[str] = []
    where = str(nodes.files[0])
    if picked.ids:
        ids = to_ids(whole[picked.ids], where, picked.ids, not nodes.is_csv, workspace.scratch)
    else:
        ids = np.arange(shares.num_rows)
        notes.append("the nodes have no id column: their ids are their row numbers")
    labels, class_names = (
        node_columns.to_labels(whole[picked.labels], where, picked.labels) if picked.labels else (None, ())
    )
    if class_names:
        notes.append(f"{len(class_names)} classes by name: {', '.join(map(repr, class_names[:_MOST_NAMED]))}")
    members = _read_members(whole, picked, where, notes)
    features = TableFeatures(rows, picked.features, ids, options.said, options.feature_columns, picked.unused, shares)
    ends = [edges.pick(options.source_column, _SOURCES), edges.pick(options.target_column, _TARGETS)]
    graph = RawGraph(name, NO_EDGES, NO_EDGES, features, labels, ids, members, notes=notes, shares=shares)
    graph.names = {"id_column": picked.ids or "id", "label_column": picked.labels, "class_names": class_names}
    graph.names |= {"source_column": ends[0], "target_column": ends[1]}
    _read_edges(edges, ends, picked, graph, workspace)
    return graph


def _open(folder: Path, what: str) -> Table:
    path = find_table(folder, what)
    if path is None:
        raise PartitionError(
            f"{folder} has no {what}.parquet or {what}.csv, and no folder {what}: a graph needs nodes and edges"
        )
    return open_table(path)


def count(folder: Path, options: SourceOptions) -> SourceCounts:
    """The counts of a folder of tables, from footers or lines; those of features from the first rows."""
    nodes, edges = _open(folder, "nodes"), _open(folder, "edges")
    picked = NodeColumns.pick(nodes, options)
    num_nodes, num_edges = _count_rows(nodes), _count_rows(edges)
    with reading(folder):
        rows = _first_rows(nodes, [name for name in picked.features if name not in nodes.in_folders])
        names = tuple(rows.table.column_names)
        found = TableFeatures(rows, names, np.empty(0), options.said, options.feature_columns, picked.unused)
        try:
            features, _, _ = found.encoded(np.ones(len(rows), dtype=bool))
        except PartitionError:  # these rows say little, or the whole table will be refused when it is read
            return SourceCounts(num_nodes, num_edges, len(names), None, "float32")
    width, entries = features.shape[1], None
    if not isinstance(features, np.ndarray):
        entries = features.nnz * num_nodes // max(len(rows), 1)
        entries = entries if keeps_sparse(entries, (num_nodes, width)) else None
    return SourceCounts(num_nodes, num_edges, width, entries, str(features.dtype))


def _first_rows(nodes: Table, names: list[str]) -> Rows:
    file = nodes.files[0]
    if nodes.is_csv:
        table = csv_files.read_first_rows(file, names)
    else:
        with pyarrow.parquet.ParquetFile(file) as opened:
            batch = next(opened.iter_batches(_ROWS_COUNTED, columns=names), None)
            table = opened.read(columns=names) if batch is None else pa.Table.from_batches([batch])
    return Rows(table, ((file, table.num_rows),))


def _read_nodes(nodes: Table, picked: NodeColumns, options: SourceOptions, workspace: Workspace) -> Rows:
    """The columns in use; a cell that is no number is looked for where it would spoil a column of numbers."""
    world = workspace.world
    kinds = {name: nodes.schema.field(name).type for name in picked.features if name not in nodes.in_folders}
    empty = [name for name, kind in kinds.items() if is_empty(kind) and nodes.is_csv]  # in its first lines
    words = [name for name, kind in kinds.items() if is_text(kind) or name in empty]
    numbers = [name for name in words if options.said.get(name) == "number"]

    def refuse_cells() -> None:
        cells.refuse_words(nodes, numbers)
        cells.refuse_spoiled(nodes, [name for name in words if name not in options.said])
        if picked.labels and nodes.is_csv and is_text(nodes.schema.field(picked.labels).type):
            cells.refuse_spoiled(nodes, [picked.labels], "write all labels as numbers or none")

    alike(world, lambda: refuse_cells() if world.rank == 0 else None)  # most are clear after the first lines
    late = [name for name in empty if name not in options.said]
    types = _csv_types(nodes.schema, picked)
    try:
        rows = read_rows(nodes, picked.names, types, picked.features, workspace.scratch, world)
    except PartitionError:
        if nodes.is_csv:
            cells.refuse_words(nodes, [name for name, kind in kinds.items() if is_number(kind)])
        raise
    return _with_numbers(rows, numbers, late, world)


def _with_numbers(rows: Rows, numbers: list[str], late: list[str], world: World) -> Rows:
    """Rows with columns of text as numbers, `late` ones if all their cells are some: their first ones were empty."""
    table, converted = rows.table, {}
    for name in (*numbers, *late):
        cells_of = pc.utf8_trim_whitespace(table[name])
        trimmed = pc.if_else(pc.equal(cells_of, ""), pa.scalar(None, cells_of.type), cells_of)
        try:
            converted[name] = trimmed.cast(pa.float64())
        except pa.ArrowInvalid:
            if name in numbers:
                raise
    for name in late:
        if not least(world, torch.tensor([name in converted]).byte(), "types"):
            converted.pop(name, None)
    for name in converted:
        table = table.set_column(table.schema.get_field_index(name), name, converted[name])
    return replace(rows, table=table)


def _csv_types(schema: pa.Schema, picked: NodeColumns) -> dict[str, pa.DataType]:
    """Types that the first lines of a CSV may not show: fractions and words can come later."""
    kinds = {name: schema.field(name).type for name in picked.features}
    types = {name: pa.float64() for name, kind in kinds.items() if is_number(kind) and kind != pa.bool_()}
    types |= {name: pa.string() for name, kind in kinds.items() if is_empty(kind)}
    for name, kind in ((picked.split, pa.string()), (picked.labels, pa.int64())):
        if name and pa.types.is_null(schema.field(name).type):
            types[name] = kind
    # Ids are read as text, or 007 would become 7.
    return {**types, picked.ids: pa.string()} if picked.ids else types


def _read_edges(edges: Table, ends: list[str], picked: NodeColumns, graph: RawGraph, workspace: Workspace) -> None:
    """Give the graph its edges, of a world of several ranks a share of them, and their weights."""
    where, world = str(edges.files[0]), workspace.world
    if not all(ends):
        have = ", ".join(edges.schema.names)
        raise PartitionError(f"{where} needs columns source and target, or their names in the options; it has {have}")
    weighted = [EDGE_WEIGHT] if EDGE_WEIGHT in edges.schema.names and EDGE_WEIGHT not in ends else []
    edges.check_once(weighted)
    dropped = [name for name in edges.schema.names if name not in (*ends, *weighted)]
    if dropped:
        more = f" and {len(dropped) - _MOST_NAMED:,} more" if len(dropped) > _MOST_NAMED else ""
        graph.notes.append(f"dropped edge columns: {', '.join(dropped[:_MOST_NAMED])}{more}")
    ids: Any = graph.original_ids
    integers, scratch = pa.types.is_integer(as_ids(ids[:1]).type), workspace.scratch
    names, numbers = [*ends, *weighted], dict.fromkeys(weighted, pa.float64())
    try:
        kind = pa.int64() if integers else pa.string()
        table = read_rows(edges, names, {**dict.fromkeys(ends, kind), **numbers}, (), scratch, world)
    except PartitionError:
        if edges.is_csv:
            cells.refuse_words(edges, weighted)
        if not (edges.is_csv and integers):
            raise
        kinds = {**dict.fromkeys(ends, pa.string()), **numbers}
        table = read_rows(edges, names, kinds, (), scratch, world)  # to name the id that is no integer
    graph.weights = node_columns.to_weights(table[EDGE_WEIGHT], where) if weighted else None
    graph.first_edge = table.first
    others = [*picked.features, *picked.unused]
    graph.sources, graph.targets = to_rows(table, ends, ids, picked.ids, others, workspace)


def _read_members(table: pa.Table, picked: NodeColumns, where: str, notes: list[str]) -> dict[int, NDArray[Any]] | None:
    if picked.split:
        return node_columns.to_members(table[picked.split], where, notes)
    return {_MASKS[mask]: node_columns.to_mask(table[mask], where, mask) for mask in picked.masks} or None


def _pick_features(nodes: Table, options: SourceOptions, used: list[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The columns that may become features, and why the others do not."""
    where, said, wanted = str(nodes.files[0]), options.said, options.feature_columns
    for name in (*wanted, *said):
        check_column(where, name, nodes.schema.names)
        if name in used and name in said:
            raise PartitionError(f"{where}: column {name!r} is no feature: leave it out of [columns]")
    others = [name for name in nodes.schema.names if name not in used and name not in wanted]
    lists = [name for name in ("features", "feat") if name in others and is_list(nodes.schema.field(name).type)]
    unused = {name: "left out, as you say" for name, use in said.items() if use == "ignore"}
    unused |= {name: "left out: a column without a name, as pandas writes an index" for name in others if not name}
    if wanted:
        unused |= {name: "left out: not among feature_columns" for name in others if name not in said}
    elif lists:
        unused |= {name: f"left out: features are in {lists[0]!r}" for name in others if name not in (lists[0], *said)}
    found = tuple(name for name in (*wanted, *others) if name not in unused)
    if not found:
        raise PartitionError(f"{where} has no features: add a list column named features, or other columns")
    nodes.check_once(found)
    return found, unused


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
    return any((path / f"{what}{suffix}").exists() for what in ("nodes", "edges") for suffix in ("", *SUFFIXES))


FORMAT = register(SourceFormat("tables", 30, read, count, recognize, "a folder of tables", find, options=OPTIONS))
