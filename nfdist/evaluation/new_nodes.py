"""NewNodes: nodes that training never saw, read from a Parquet file and found their place beside a graph."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdist.errors import ConfigError, UnknownNodeError
from nfdist.reading import read_parquet, reading
from nfdist.store.store import Store

ID, FEATURES, NEIGHBORS = "id", "features", "neighbors"


@dataclass(frozen=True)
class NewNodes:
    """Features [n, f], and node ids of neighbors: neighbors[indptr[r] : indptr[r + 1]] are those of row r.

    `node_ids` [n] is which node of the graph a row stands for, -1 for none; `ids` are as given.
    """

    ids: Any
    features: Tensor
    indptr: NDArray[np.int64]
    neighbors: NDArray[np.int64]
    node_ids: NDArray[np.int64]

    @staticmethod
    def read(path: Path, store: Store) -> "NewNodes":
        """The rows of a Parquet file: id, features (a list, or a column each) and optionally neighbors."""
        with reading(path, ConfigError):  # whatever Arrow cannot read or convert
            return NewNodes.from_table(read_parquet(path), store, path)

    @staticmethod
    def from_table(table: Any, store: Store, path: Path = Path("the table")) -> "NewNodes":
        """The rows of an Arrow table; messages call it `path`."""
        with reading(path, ConfigError):
            ids = _ids(table, path)
            features = _features(table, store.num_features, ids, path)
            options = store.manifest.recipe.get("options", {})
            if options.get("normalize_features") == "row":  # as the graph's own were
                _normalize(features, ids, path)
            indptr, neighbors = _neighbors(table, store, path)
        return NewNodes(ids, torch.from_numpy(features), indptr, neighbors, _known(store, ids))

    def rows(self, rows: slice) -> "NewNodes":
        """Some of them."""
        indptr = self.indptr[rows.start : rows.stop + 1]
        neighbors = self.neighbors[indptr[0] : indptr[-1]]
        return NewNodes(self.ids[rows], self.features[rows], indptr - indptr[0], neighbors, self.node_ids[rows])

    def __len__(self) -> int:
        return len(self.ids)


def as_arrow(table: Any) -> Any:
    """A pandas table as an Arrow table, which is taken as it is."""
    if isinstance(table, pa.Table):
        return table
    if type(table).__module__.partition(".")[0] != "pandas" or getattr(table, "ndim", 0) != 2:
        raise ConfigError(f"new nodes must be a pandas or Arrow table, got {type(table).__name__}: convert them")
    with reading(Path("the table"), ConfigError):
        return pa.Table.from_pandas(table, preserve_index=False)


def _ids(table: Any, path: Path) -> Any:
    """What the user calls the nodes: integers or text, each once."""
    ids = _column(table, ID, path)
    if not (pa.types.is_integer(ids.type) or _is_text(ids.type)):
        raise ConfigError(f"column {ID} of {path} must be integers or text, got {ids.type}: give every node a name")
    if ids.null_count:
        raise ConfigError(f"{path} has {ids.null_count} rows without an id: give every node one")
    if len(ids) == 0:
        raise ConfigError(f"{path} has no rows: there is nothing to predict")
    counted = pc.value_counts(ids)
    repeated = counted.field(0).filter(pc.greater(counted.field(1), 1))
    if len(repeated):
        raise ConfigError(
            f"{path} has {len(repeated)} ids more than once, the first is {_show(repeated, 0)}: name each node once"
        )
    if ids.type != pa.uint64():
        return ids
    if pc.max(ids).as_py() >= 1 << 63:
        raise ConfigError(f"id {pc.max(ids).as_py()} of {path} does not fit 64 bits with a sign: use text")
    return ids.cast(pa.int64())


def _normalize(features: NDArray[np.float32], ids: Any, path: Path) -> None:
    with np.errstate(over="ignore"):
        sums = np.abs(features).sum(1, keepdims=True)
    for row in np.flatnonzero(~np.isfinite(sums))[:1]:
        raise ConfigError(f"features of node {_show(ids, row)} in {path} are too large to be normalized: repair them")
    features /= np.maximum(sums, np.finfo(np.float32).tiny)


def _column(table: Any, name: str, path: Path) -> Any:
    if name not in table.column_names:
        raise ConfigError(f"{path} has no column {name}, only {', '.join(table.column_names) or 'none'}: add it")
    column = table.column(name)
    if pa.types.is_dictionary(column.type) or str(column.type) == "string_view":
        column = column.cast(getattr(column.type, "value_type", pa.large_string()))
    return column.combine_chunks()


def _features(table: Any, num_features: int, ids: Any, path: Path) -> NDArray[np.float32]:
    if FEATURES in table.column_names:
        column = _column(table, FEATURES, path)
        if not _is_list(column.type) or not _is_number(column.type.value_type):
            raise ConfigError(f"column {FEATURES} of {path} must be lists of numbers, got {column.type}")
        widths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(widths != num_features)[:1]:
            raise _wrong_width(path, f"node {_show(ids, row)} has {widths[row]}", num_features)
        given = _numbers(column.flatten()).reshape(len(column), num_features)
        names = [f"column {FEATURES}, entry {place + 1}" for place in range(num_features)]
    else:
        others = [field.name for field in table.schema if _is_number(field.type) and field.name not in (ID, NEIGHBORS)]
        if len(others) != num_features:
            raise _wrong_width(path, f"besides {ID} it has {len(others)} columns of numbers", num_features)
        given = np.stack([_numbers(_column(table, name, path)) for name in others], 1)
        names = [f"column {name!r}" for name in others]
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused as such
        rows = given.astype(np.float32)
    for row, place in np.argwhere(~np.isfinite(rows))[:1]:
        value = "missing or NaN" if np.isnan(given[row, place]) else f"{given[row, place]}, too large or infinite"
        raise ConfigError(f"features of node {_show(ids, row)} in {path}: {names[place]} is {value}: repair it")
    return rows


def _wrong_width(path: Path, found: str, num_features: int) -> ConfigError:
    return ConfigError(f"{path} must have {num_features} features a node, as the graph has, {found}: give all of them")


def _neighbors(table: Any, store: Store, path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets [n + 1] and node ids, each row's distinct and ascending."""
    indptr = np.zeros(len(table) + 1, dtype=np.int64)
    if NEIGHBORS not in table.column_names:
        return indptr, indptr[:0]
    column = _column(table, NEIGHBORS, path)
    if not _is_list(column.type):
        raise ConfigError(f"column {NEIGHBORS} of {path} must be lists of original ids, got {column.type}")
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    names = column.flatten()
    if pa.types.is_dictionary(names.type):
        names = names.dictionary_decode()
    if not (pa.types.is_integer(names.type) or _is_text(names.type) or pa.types.is_null(names.type)):
        raise ConfigError(f"column {NEIGHBORS} of {path} must be lists of original ids, got {column.type}")
    if len(names) == 0:
        return indptr, indptr[:0]
    if names.null_count:
        raise ConfigError(f"column {NEIGHBORS} of {path} has {names.null_count} empty entries: leave them out")
    try:
        found = store.node_ids(names.to_numpy(zero_copy_only=False)).numpy()
    except UnknownNodeError as error:
        raise ConfigError(f"column {NEIGHBORS} of {path}: {error}: name nodes of the graph only") from None
    return distinct(np.repeat(np.arange(len(counts)), counts), found, len(counts), store.num_nodes)


def distinct(
    rows: NDArray[np.int64], node_ids: NDArray[np.int64], num_rows: int, num_nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of a row and a node id as offsets [rows + 1] and ascending node ids, each pair once."""
    pairs = np.unique(rows * num_nodes + node_ids)
    return np.searchsorted(pairs, np.arange(num_rows + 1) * num_nodes), pairs % num_nodes


def _known(store: Store, ids: Any) -> NDArray[np.int64]:
    """The node id of each original id, -1 for what is no node of the graph."""
    number = pa.types.is_integer(ids.type) and ids.type != pa.uint64()
    if not (number if store.manifest.id_type == "int64" else _is_text(ids.type)):
        return np.full(len(ids), -1)
    return store.known_node_ids(ids)


def _numbers(column: Any) -> NDArray[np.float64]:
    """Numbers, NaN for what is missing; whole numbers beyond 2^53 are rounded, as float32 does anyway."""
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def _show(ids: Any, row: Any) -> str:
    return f"{ids[int(row)].as_py()!r:.100}"


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
