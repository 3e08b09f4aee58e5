"""NewNodes: nodes that training never saw, read from a table by the names of the graph's columns."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nfdist import log
from nfdist.errors import ConfigError
from nfdist.reading import check_distinct, reading
from nfdist.store.columns import check_unique, is_text, to_ids
from nfdist.store.edge_ends import EdgeEnds, Joined, check_ends
from nfdist.store.encoding import check_normalized, csv_type, encode, normalize_rows
from nfdist.store.pairs import Numbers, Pairs, Weights, distinct, summed
from nfdist.store.schema import EDGE_WEIGHT, NEIGHBORS
from nfdist.store.store import Store
from nfdist.store.table_files import Rows, open_table

TABLE = Path("the table")


@dataclass(frozen=True)
class NewNodes:
    """Features [n, f] and, as offsets [n + 1] and numbers, the nodes that send to each row.

    `neighbors` are node ids of the graph, `among` rows of these new nodes, None where each is by itself. `node_ids` [n]
    is which node of the graph a row stands for, -1 for none; `ids` are as given. If the graph's edges have weights,
    those of `neighbors` and `among` have some, too.
    """

    ids: Any
    features: Any
    neighbors: Pairs
    node_ids: NDArray[np.int64]
    among: Pairs | None = None
    weights: NDArray[np.float32] | None = None
    among_weights: NDArray[np.float32] | None = None

    def count_without_edges(self, store: Store) -> int:
        """How many rows stand for nodes that have neighbors in the graph, and come without any."""
        lonely = self.node_ids[(np.diff(self.neighbors[0]) == 0) & (self.node_ids >= 0)]
        count = 0
        for number, part in enumerate(store.parts):
            rows = lonely[(lonely >= part.start) & (lonely < part.stop)] - part.start
            count += int((store.in_edges_of(number, rows)[1] > 0).sum()) if len(rows) else 0
        return count

    @staticmethod
    def read(path: Path, store: Store, edges: Path | None = None, together: bool = False) -> "NewNodes":
        """The rows of a Parquet or CSV file, with the edges of another."""
        schema = store.manifest.schema
        with reading(path, ConfigError):  # whatever Arrow cannot read or convert
            table = open_table(path)
            names = _wanted(store, table.schema.names, path)
            types = {column.name: csv_type(column) for column in schema.columns}
            verbatim = [column.name for column in schema.columns]
            rows = table.read(names, {**types, schema.id_column: pa.string()}, verbatim)
        with reading(edges or path, ConfigError):
            joined = None if edges is None else _read_edges(edges, store)
        return _new_nodes(rows, store, joined, together, typed=not table.is_csv or store.manifest.id_type == "string")

    @staticmethod
    def from_table(table: Any, store: Store, edges: Any = None, together: bool = False) -> "NewNodes":
        """The rows of an Arrow table, with the edges of another."""
        with reading(TABLE, ConfigError):
            rows = Rows(table.select(_wanted(store, table.column_names, TABLE)), ((TABLE, len(table)),))
            joined = None if edges is None else Rows(edges, ((Path("the table of edges"), len(edges)),))
        return _new_nodes(rows, store, joined, together)

    def rows(self, rows: slice) -> "NewNodes":
        """Some of them, each by itself."""
        indptr, neighbors = self.neighbors
        indptr = indptr[rows.start : rows.stop + 1]
        pairs = indptr - indptr[0], neighbors[indptr[0] : indptr[-1]]
        weights = None if self.weights is None else self.weights[indptr[0] : indptr[-1]]
        return NewNodes(self.ids[rows], self.features[rows], pairs, self.node_ids[rows], weights=weights)

    def __len__(self) -> int:
        return len(self.ids)


def as_arrow(table: Any) -> Any:
    """A pandas table as an Arrow table, which is taken as it is."""
    if table is None or isinstance(table, pa.Table):
        return table
    if type(table).__module__.partition(".")[0] != "pandas" or getattr(table, "ndim", 0) != 2:
        raise ConfigError(f"new nodes must be a pandas or Arrow table, got {type(table).__name__}: convert them")
    with reading(TABLE, ConfigError):
        return pa.Table.from_pandas(table, preserve_index=False)


def _wanted(store: Store, there: list[str], path: Path) -> list[str]:
    """The columns to read; one that is not there is refused, one that the graph did not have is told."""
    schema = store.manifest.schema
    wanted = [schema.id_column, *(column.name for column in schema.columns)]
    for name in wanted:
        if name not in there:
            raise ConfigError(f"{path} has no column {name!r}, which the nodes of {store.directory} have: add it")
    wanted += [NEIGHBORS] if NEIGHBORS in there and NEIGHBORS not in wanted else []
    check_distinct(path, there, wanted)
    extra = [name for name in there if name not in (*wanted, schema.label_column, *schema.unused)]
    if extra:
        log.notice(f"{path} has columns that are not used, since the graph had none of the name: {', '.join(extra)}")
    return wanted


def _new_nodes(rows: Rows, store: Store, edges: Rows | None, together: bool, typed: bool = True) -> NewNodes:
    manifest, schema = store.manifest, store.manifest.schema
    with reading(rows.name, ConfigError):
        if len(rows) == 0:
            raise ConfigError(f"{rows.name} has no rows: there is nothing to predict")
        ids = _ids(rows, schema.id_column, typed)
        features = encode(schema.columns, rows, np.dtype(manifest.feature_dtype), manifest.feature_kind == "sparse")
        if schema.normalize == "row":
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                features = normalize_rows(features)
            check_normalized(features, rows)
        same_type = is_text(ids.type) == (manifest.id_type == "string")
        node_ids = store.known_node_ids(ids) if same_type else np.full(len(ids), -1)
        if together and (node_ids >= 0).any():
            known = ids[int(np.argmax(node_ids >= 0))].as_py()
            raise ConfigError(f"{rows.name} has {known!r}, a node of the graph: --together is for other nodes")
        ends = EdgeEnds(ids, store, together)
        joined = [ends.listed(rows, NEIGHBORS)] if NEIGHBORS in rows.table.column_names else []
        joined = joined if manifest.directed else [one.both_ways() for one in joined]
    with reading(edges.name if edges else rows.name, ConfigError):
        every = Joined.concatenate(*joined, *([ends.given(edges)] if edges else []))
    weighted = manifest.weighted
    neighbors, weights = _pairs(every.targets, every.sources, every.weights, len(ids), store.num_nodes, weighted)
    if not together:
        return NewNodes(ids, features, neighbors, node_ids, weights=weights)
    others = every.new_targets != every.new_sources
    new = (every.new_targets[others], every.new_sources[others], every.new_weights[others])
    among, among_weights = _pairs(*new, len(ids), len(ids), weighted)
    return NewNodes(ids, features, neighbors, node_ids, among, weights, among_weights)


def _pairs(
    rows: Numbers, numbers: Numbers, weights: Weights, num_rows: int, limit: int, weighted: bool
) -> tuple[Pairs, NDArray[np.float32] | None]:
    """Each edge once, and what it weighs."""
    pairs = distinct(rows, numbers, num_rows, limit)
    return pairs, summed(rows, numbers, weights, pairs, limit).astype(np.float32) if weighted else None


def _read_edges(path: Path, store: Store) -> Rows:
    """The ends of edges and, if those of the graph have weights, what each weighs."""
    schema, table = store.manifest.schema, open_table(path)
    ends = [schema.source_column, schema.target_column]
    check_ends(str(path), table.schema.names, store)
    there = store.manifest.weighted and EDGE_WEIGHT in table.schema.names and EDGE_WEIGHT not in ends
    weights = {EDGE_WEIGHT: pa.float64()} if there else {}
    table.check_once(list(weights))
    return table.read([*ends, *weights], {**dict.fromkeys(ends, pa.string()), **weights})


def _ids(rows: Rows, name: str, typed: bool) -> Any:
    """What the user calls the nodes: integers or text, each once."""
    ids = pa.array(to_ids(rows[name], rows.name, name, typed))
    check_unique(rows.name, ids)
    if ids.type == pa.uint64() and pc.max(ids).as_py() >= 1 << 63:
        raise ConfigError(f"id {pc.max(ids).as_py()} of {rows.name} does not fit 64 bits with a sign: use text")
    return ids.cast(pa.int64()) if pa.types.is_integer(ids.type) else ids
