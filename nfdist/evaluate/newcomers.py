"""Newcomers: nodes that training never saw, read from a Parquet file and found their place beside a graph."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdist.errors import ConfigError, PartitionError
from nfdist.store.store import Store

ID, FEATURES, NEIGHBORS = "id", "features", "neighbors"


@dataclass(frozen=True)
class Newcomers:
    """Features [n, f], and node ids of neighbors: neighbors[indptr[r] : indptr[r + 1]] are those of row r.

    `node_ids` [n] is which node of the graph a row stands for, -1 for none; `ids` are as given.
    """

    ids: Any
    features: Tensor
    indptr: NDArray[np.int64]
    neighbors: NDArray[np.int64]
    node_ids: NDArray[np.int64]

    @staticmethod
    def read(path: Path, store: Store) -> "Newcomers":
        """The rows of a Parquet file: id, features (a list, or a column each) and optionally neighbors."""
        table = _read_table(path)
        ids = _column(table, ID, path)
        if ids.null_count:
            raise ConfigError(f"{path} has {ids.null_count} rows without an id: give every node one")
        features = _features(table, store.num_features, ids, path)
        options = store.manifest.recipe.get("options", {})
        if options.get("normalize_features") == "row":  # as the graph's own were
            features /= np.maximum(np.abs(features).sum(1, keepdims=True), np.finfo(np.float32).tiny)
        indptr, neighbors = _neighbors(table, store, path)
        return Newcomers(ids, torch.from_numpy(features), indptr, neighbors, _known(store, ids))

    def rows(self, rows: slice) -> "Newcomers":
        """Some of them."""
        indptr = self.indptr[rows.start : rows.stop + 1]
        neighbors = self.neighbors[indptr[0] : indptr[-1]]
        return Newcomers(self.ids[rows], self.features[rows], indptr - indptr[0], neighbors, self.node_ids[rows])

    def __len__(self) -> int:
        return len(self.ids)


def _read_table(path: Path) -> Any:
    try:
        return pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise ConfigError(f"{path} cannot be read as Parquet ({reason}): give a file of new nodes") from None


def _column(table: Any, name: str, path: Path) -> Any:
    if name not in table.column_names:
        raise ConfigError(f"{path} has no column {name}, only {', '.join(table.column_names) or 'none'}: add it")
    column = table.column(name).combine_chunks()
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _features(table: Any, num_features: int, ids: Any, path: Path) -> NDArray[np.float32]:
    if FEATURES in table.column_names:
        column = _column(table, FEATURES, path)
        if not _is_list(column.type) or not _is_number(column.type.value_type):
            raise ConfigError(f"column {FEATURES} of {path} must be lists of numbers, got {column.type}")
        widths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(widths != num_features)[:1]:
            raise _wrong_width(path, f"node {ids[row].as_py()!r} has {widths[row]}", num_features)
        rows = _floats(column.flatten()).reshape(len(column), num_features)
    else:
        others = [field.name for field in table.schema if _is_number(field.type) and field.name not in (ID, NEIGHBORS)]
        if len(others) != num_features:
            raise _wrong_width(path, f"besides {ID} it has {len(others)} columns of numbers", num_features)
        rows = np.stack([_floats(_column(table, name, path)) for name in others], 1)
    for row in np.flatnonzero(~np.isfinite(rows).all(1))[:1]:
        raise ConfigError(f"features of node {ids[row].as_py()!r} in {path} are missing, NaN or infinite: repair them")
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
    if len(names) == 0:
        return indptr, indptr[:0]
    if names.null_count:
        raise ConfigError(f"column {NEIGHBORS} of {path} has {names.null_count} empty entries: leave them out")
    try:
        found = store.node_ids(names.to_numpy(zero_copy_only=False)).numpy()
    except PartitionError as error:
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
    text = pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)
    number = pa.types.is_integer(ids.type) and ids.type != pa.uint64()
    if not (number if store.manifest.id_type == "int64" else text):
        return np.full(len(ids), -1)
    return store.known_node_ids(ids)


def _floats(column: Any) -> NDArray[np.float32]:
    """Numbers, NaN for what is missing."""
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float32)


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))
