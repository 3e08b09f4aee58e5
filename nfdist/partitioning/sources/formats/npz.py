"""npz: graphs in an .npz file, read without unpickling anything."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from nfdist.errors import PartitionError
from nfdist.partitioning.sources import splits
from nfdist.partitioning.sources.archive import Archive
from nfdist.partitioning.sources.feature_rows import keeps_sparse, stored_dtype
from nfdist.partitioning.sources.formats.source_format import Located, SourceCounts, SourceFormat, has_suffix, register
from nfdist.partitioning.sources.options import SourceOptions
from nfdist.partitioning.sources.raw_graph import RawGraph
from nfdist.partitioning.sources.validation import check_integers
from nfdist.partitioning.workspace import Workspace
from nfdist.store.table_files import check_column

DATASETS = ("cora", "citeseer", "pubmed", "actor", "deezer-europe")
ARRAYS, OPTIONS = "edge_index, feat and label", ("id_column", "label_column")
CSR_PARTS = ("feat_indptr", "feat_indices", "feat_data", "feat_shape")
# Such as train_idx, val_mask, geomgcn_train_masks [s, n] and cuai_split_train [s, m]: the prefix names a set of splits.
_MEMBERS = re.compile(r"(?P<set>.*?)(?P<word>train|val|valid|validation|test)_(?P<form>idx|mask|masks)")
_LISTED = re.compile(r"(?P<set>.*)split_(?P<word>train|val|valid|validation|test)")


def read(path: Path, name: str, options: SourceOptions, workspace: Workspace) -> RawGraph:
    """The graph of an .npz: `edge_index`, `edge_weight`, features, `label` and splits; others are ignored with a note.

    Labels and ids may be other arrays, named as columns are; edges are row numbers all the same.
    """
    with Archive.open(path, workspace.scratch) as arrays:
        features = _read_features(arrays)
        edges = arrays.read("edge_index") if "edge_index" in arrays.names else np.empty((2, 0), np.int64)
        for wanted in filter(None, (options.label_column, options.id_column)):
            check_column(str(path), wanted, arrays.names)
        label = options.label_column or "label"
        labels = arrays.read(label) if label in arrays.names else None
        ids = arrays.read(options.id_column) if options.id_column else None
        chosen = _choose_splits(arrays.names)
        members = {code: _read_member(arrays, key) for code, key in chosen.items()}
        weights = arrays.read("edge_weight") if "edge_weight" in arrays.names else None
        used = {"edge_index", "edge_weight", "feat", label, options.id_column, *CSR_PARTS, *chosen.values()}
        ignored = [key for key in arrays.names if key not in used]
    if edges.ndim != 2 or len(edges) != 2:
        raise PartitionError(f"{path}: edge_index must be [2, edges], sources first, got {list(edges.shape)}")
    notes = [f"ignored arrays: {', '.join(ignored)}"] if ignored else []
    official = members if members and name not in splits.UNOFFICIAL else None
    return RawGraph(name, edges[0], edges[1], features, labels, ids, official, notes=notes, weights=weights)


def count(path: Path, options: SourceOptions) -> SourceCounts:
    """The counts of an .npz, from the headers of its arrays."""
    with Archive.open(path) as arrays:
        edges, dense, data = (
            arrays.header(key) if key in arrays.names else None for key in ("edge_index", "feat", "feat_data")
        )
        num_edges = edges[0][-1] if edges and edges[0] else 0
        if dense is not None and len(dense[0]) == 2:
            return SourceCounts(dense[0][0], num_edges, dense[0][1], None, stored_dtype(dense[1]))
        if data is None or not data[0] or "feat_shape" not in arrays.names:
            raise PartitionError(f"{path} has no features: add feat [nodes, columns], or the arrays feat_*")
        num_nodes, width = _read_shape(arrays)
        if "feat_indptr" not in arrays.names or arrays.header("feat_indptr")[0] != (num_nodes + 1,):
            raise PartitionError(
                f"{path}: feat_indptr must have an entry more than the {num_nodes:,} rows of feat_shape"
            )
    nonzeros = data[0][0] if keeps_sparse(data[0][0], (num_nodes, width)) else None
    return SourceCounts(num_nodes, num_edges, width, nonzeros, "float32")


def find(name: str, folder: Path | None) -> Located | None:
    """The file of a dataset in the data folder."""
    path = None if folder is None else folder / f"{name}.npz"
    return Located(name, FORMAT, path) if path is not None and path.is_file() else None


def where_to_look(name: str, folder: Path | None) -> str:
    """Why `find` did not find it."""
    looked = "$NFDIST_DATA names no folder" if folder is None else f"{name}.npz is not in {folder} ($NFDIST_DATA)"
    return f"{name} is not here and is not downloaded: {looked}"


def where_to_put(name: str, folder: Path | None) -> str:
    return f"{where_to_look(name, folder)}; put {name}.npz there, with {ARRAYS}"


def _read_shape(arrays: Archive) -> tuple[int, int]:
    """The numbers of rows and columns of features in CSR parts."""
    shape = arrays.read("feat_shape")
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or min(map(int, shape)) < 0:
        raise PartitionError(f"{arrays.path}: feat_shape must be two numbers, rows and columns, got {shape.tolist()}")
    return int(shape[0]), int(shape[1])


def _read_features(arrays: Archive) -> Any:
    if "feat" in arrays.names:
        return arrays.read("feat")
    missing = [key for key in CSR_PARTS if key not in arrays.names]
    if missing:
        raise PartitionError(
            f"{arrays.path} has no features: add feat [nodes, columns], or the missing {', '.join(missing)}"
        )
    num_rows, num_columns = _read_shape(arrays)
    indptr, indices, data = (arrays.read(key) for key in CSR_PARTS[:3])
    for key, values in zip(CSR_PARTS, (indptr, indices, data), strict=False):
        if values.ndim != 1:
            raise PartitionError(f"{arrays.path}: {key} must be a list, got shape {list(values.shape)}")
    check_integers(f"{arrays.path}: feat_indptr", indptr)
    check_integers(f"{arrays.path}: feat_indices", indices)
    if len(indptr) != num_rows + 1 or len(indices) != len(data):
        raise PartitionError(
            f"{arrays.path}: feat_shape {[num_rows, num_columns]}, {len(indptr)} feat_indptr, {len(indices)} "
            f"feat_indices and {len(data)} feat_data do not fit: give rows + 1 offsets, and an index for each value"
        )
    if indptr[0] != 0 or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
        raise PartitionError(f"{arrays.path}: feat_indptr must ascend from 0 to the {len(indices)} feat_indices")
    outside = np.flatnonzero((indices < 0) | (indices >= num_columns))
    if len(outside):
        raise PartitionError(
            f"{arrays.path}: feat_indices[{outside[0]}] is {indices[outside[0]]}, outside the {num_columns} columns"
        )
    return scipy.sparse.csr_array((data, indices, indptr), shape=(num_rows, num_columns))


def _choose_splits(keys: Iterable[str]) -> dict[int, str]:
    """The arrays of one set of splits by split code: the set without a prefix if there is one, else the first."""
    sets: dict[str, dict[int, str]] = {}
    for key in keys:
        match = _MEMBERS.fullmatch(key) or _LISTED.fullmatch(key)
        if match:
            sets.setdefault(match["set"], {}).setdefault(splits.WORDS[match["word"]], key)
    whole = {name: found for name, found in sets.items() if len(found) == 3}
    return whole.get("") or next(iter(whole.values()), {})


def _read_member(arrays: Archive, key: str) -> Any:
    listed = arrays.read(key)
    return splits.as_mask(listed, f"{arrays.path}: {key}") if key.endswith(("_mask", "_masks")) else listed


FORMAT = register(
    SourceFormat("npz", 10, read, count, has_suffix(".npz"), "an .npz", find, DATASETS, where_to_put, OPTIONS)
)
