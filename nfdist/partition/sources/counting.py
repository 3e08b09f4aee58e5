"""How large a source is, without loading it where its format allows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from nfdist.errors import PartitionError
from nfdist.partition.sources import columns, dgl_files, features, named, npz, ogb_files, synthetic, tables
from nfdist.partition.sources.archive import Archive
from nfdist.partition.sources.locate import Located, locate
from nfdist.partition.sources.options import SourceOptions
from nfdist.partition.sources.table_files import Table, open_table
from nfdist.reading import reading

_BYTES_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class SourceCounts:
    """What a loaded source would hold: `edges` as listed, before symmetrizing; `nonzeros` None for dense features."""

    nodes: int
    edges: int
    features: int
    nonzeros: int | None
    dtype: str


def counts(source: str, options: SourceOptions) -> SourceCounts:
    """The counts of a name or a path; a k-NN graph counts its neighbors once."""
    found = _measure(locate(source), options)
    if not options.knn:
        return found
    return SourceCounts(found.nodes, found.nodes * options.knn, found.features, found.nonzeros, found.dtype)


def _measure(located: Located, options: SourceOptions) -> SourceCounts:
    if located.kind == "synthetic":
        return SourceCounts(*synthetic.sizes(options.scale), synthetic.NUM_FEATURES, None, "float32")
    if located.kind in ("digits", "news"):
        raw = named.read_digits() if located.kind == "digits" else named.read_news(located.path)
        rows = features.prepare(raw.features, raw.name)
        return SourceCounts(rows.shape[0], 0, rows.shape[1], getattr(rows, "nnz", None), str(rows.dtype))
    assert located.path is not None
    if located.kind == "npz":
        return _measure_npz(located.path)
    if located.kind == "ogb":
        return SourceCounts(*ogb_files.read_sizes(located.path), None, "float32")
    if located.kind == "tables":
        return _measure_tables(located.path, options)
    measure = dgl_files.measure_graph if located.kind == "dgl" else dgl_files.measure_partition
    num_nodes, num_edges, rows = measure(located.path, options)
    return SourceCounts(num_nodes, num_edges, int(np.prod(rows.shape[1:])), None, _dtype_of(rows.dtype))


def _measure_npz(path: Path) -> SourceCounts:
    with Archive.open(path) as arrays:
        edges, dense, data = (
            arrays.header(key) if key in arrays.names else None for key in ("edge_index", "feat", "feat_data")
        )
        num_edges = edges[0][-1] if edges and edges[0] else 0
        if dense is not None and len(dense[0]) == 2:
            return SourceCounts(dense[0][0], num_edges, dense[0][1], None, _dtype_of(dense[1]))
        if data is None or not data[0] or "feat_shape" not in arrays.names:
            raise PartitionError(f"{path} has no features: add feat [nodes, columns], or the arrays feat_*")
        num_nodes, width = npz.read_shape(arrays)
        if "feat_indptr" not in arrays.names or arrays.header("feat_indptr")[0] != (num_nodes + 1,):
            raise PartitionError(
                f"{path}: feat_indptr must have an entry more than the {num_nodes:,} rows of feat_shape"
            )
    nonzeros = data[0][0] if features.keeps_sparse(data[0][0], (num_nodes, width)) else None
    return SourceCounts(num_nodes, num_edges, width, nonzeros, "float32")


def _measure_tables(folder: Path, options: SourceOptions) -> SourceCounts:
    nodes, edges = open_table(folder, "nodes"), open_table(folder, "edges")
    picked = tables.NodeColumns.pick(nodes, options).features
    kinds = [nodes.schema.field(name).type for name in picked]
    halves = all(pa.types.is_float16(kind.value_type if columns.is_list(kind) else kind) for kind in kinds)
    width = _list_width(nodes, picked[0]) if columns.is_list(kinds[0]) else len(picked)
    return SourceCounts(_count_rows(nodes), _count_rows(edges), width, None, "float16" if halves else "float32")


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


def _dtype_of(dtype: np.dtype[Any]) -> str:
    return "float16" if dtype == np.float16 else "float32"
