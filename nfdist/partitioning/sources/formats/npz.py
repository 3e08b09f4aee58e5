"""npz: graphs in an .npz file, read without unpickling anything."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from nfdist.collectives import alike
from nfdist.errors import PartitionError
from nfdist.partitioning.sources import splits
from nfdist.partitioning.sources.archive import Archive
from nfdist.partitioning.sources.feature_rows import keeps_sparse, stored_dtype
from nfdist.partitioning.sources.first_wrong import first_wrong
from nfdist.partitioning.sources.formats.source_format import Located, SourceCounts, SourceFormat, has_suffix, register
from nfdist.partitioning.sources.options import SourceOptions
from nfdist.partitioning.sources.raw_graph import RawGraph
from nfdist.partitioning.sources.validation import check_integers
from nfdist.partitioning.workspace import Workspace
from nfdist.store.row_shares import RowShares
from nfdist.store.table_files import check_column
from nfdist.world import World

DATASETS = ("cora", "citeseer", "pubmed", "actor", "deezer-europe")
ARRAYS, OPTIONS = "edge_index, feat and label", ("id_column", "label_column")
CSR_PARTS = ("feat_indptr", "feat_indices", "feat_data", "feat_shape")
# Such as train_idx, val_mask, geomgcn_train_masks [s, n] and cuai_split_train [s, m]: the prefix names a set of splits.
_MEMBERS = re.compile(r"(?P<set>.*?)(?P<word>train|val|valid|validation|test)_(?P<form>idx|mask|masks)")
_LISTED = re.compile(r"(?P<set>.*)split_(?P<word>train|val|valid|validation|test)")


def read(path: Path, name: str, options: SourceOptions, workspace: Workspace) -> RawGraph:
    """The graph of an .npz: `edge_index`, `edge_weight`, features, `label` and splits; others are ignored with a note.

    Labels and ids may be other arrays, named as columns are; edges are row numbers all the same. Of a world of several
    ranks each reads some rows of the features and some edges, where these have the shapes that they should have.
    """
    world = workspace.world
    with Archive.open(path, workspace.scratch) as arrays:
        sizes = _sizes(arrays) if world.size > 1 else None
        nodes, numbers = (RowShares.equal(world, size) for size in sizes) if sizes else (None, None)
        features = _read_features(arrays, nodes, world)
        part = numbers.own if numbers else None
        edges, weights = alike(world, lambda: (_read_edges(arrays, part), _read_weights(arrays, part)))
        for wanted in filter(None, (options.label_column, options.id_column)):
            check_column(str(path), wanted, arrays.names)
        label = options.label_column or "label"
        labels = arrays.read(label) if label in arrays.names else None
        ids = arrays.read(options.id_column) if options.id_column else None
        chosen = _choose_splits(arrays.names)
        members = {code: _read_member(arrays, key) for code, key in chosen.items()}
        used = {"edge_index", "edge_weight", "feat", label, options.id_column, *CSR_PARTS, *chosen.values()}
        ignored = [key for key in arrays.names if key not in used]
    if edges.ndim != 2 or len(edges) != 2:
        raise PartitionError(f"{path}: edge_index must be [2, edges], sources first, got {list(edges.shape)}")
    notes = [f"ignored arrays: {', '.join(ignored)}"] if ignored else []
    official = members if members and name not in splits.UNOFFICIAL else None
    graph = RawGraph(name, edges[0], edges[1], features, labels, ids, official, notes=notes, weights=weights)
    return replace(graph, shares=nodes, first_edge=part.start if part else 0)


def _sizes(arrays: Archive) -> tuple[int, int] | None:
    """The numbers of nodes and edges that are divided among ranks; None where arrays have other shapes than usual."""
    shapes = {key: arrays.header(key)[0] for key in arrays.names}
    edges = shapes.get("edge_index", (2, 0))
    if "feat" not in shapes and "feat_shape" in shapes:
        num_nodes = _read_shape(arrays)[0]
    elif len(shapes.get("feat", ())) == 2:
        num_nodes = shapes["feat"][0]
    else:
        return None
    if len(edges) != 2 or edges[0] != 2 or shapes.get("edge_weight", edges[1:]) != edges[1:]:
        return None
    return num_nodes, edges[1]


def _read_edges(arrays: Archive, part: slice | None) -> Any:
    return arrays.read("edge_index", 1, part) if "edge_index" in arrays.names else np.empty((2, 0), np.int64)


def _read_weights(arrays: Archive, part: slice | None) -> Any:
    return arrays.read("edge_weight", 0, part) if "edge_weight" in arrays.names else None


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


def _read_features(arrays: Archive, nodes: RowShares | None, world: World) -> Any:
    own = nodes.own if nodes else None
    if "feat" in arrays.names:
        return alike(world, lambda: arrays.read("feat", 0, own))
    missing = [key for key in CSR_PARTS if key not in arrays.names]
    if missing:
        raise PartitionError(
            f"{arrays.path} has no features: add feat [nodes, columns], or the missing {', '.join(missing)}"
        )
    num_rows, num_columns = _read_shape(arrays)
    shapes = [arrays.header(key)[0] for key in CSR_PARTS[:3]]
    for key, shape in zip(CSR_PARTS, shapes, strict=False):
        if len(shape) != 1:
            raise PartitionError(f"{arrays.path}: {key} must be a list, got shape {list(shape)}")
    indptr = arrays.read("feat_indptr")
    check_integers(f"{arrays.path}: feat_indptr", indptr)
    check_integers(f"{arrays.path}: feat_indices", np.empty(0, arrays.header("feat_indices")[1]))
    num_indices, num_values = shapes[1][0], shapes[2][0]
    if len(indptr) != num_rows + 1 or num_indices != num_values:
        raise PartitionError(
            f"{arrays.path}: feat_shape {[num_rows, num_columns]}, {len(indptr)} feat_indptr, {num_indices} "
            f"feat_indices and {num_values} feat_data do not fit: give rows + 1 offsets, and an index for each value"
        )
    if indptr[0] != 0 or indptr[-1] != num_indices or (indptr[1:] < indptr[:-1]).any():
        raise PartitionError(f"{arrays.path}: feat_indptr must ascend from 0 to the {num_indices} feat_indices")
    rows = own or slice(0, num_rows)
    first = int(indptr[rows.start])
    entries = slice(first, int(indptr[rows.stop])) if own else None
    indices, data = alike(world, lambda: tuple(arrays.read(key, 0, entries) for key in CSR_PARTS[1:3]))
    outside = np.flatnonzero((indices < 0) | (indices >= num_columns))
    told = f"feat_indices[{first + outside[0]}] is {indices[outside[0]]}" if len(outside) else ""
    count, told = first_wrong(world, len(outside), told)
    if count:
        raise PartitionError(f"{arrays.path}: {told}, outside the {num_columns} columns")
    ends = indptr[rows.start : rows.stop + 1] - indptr[rows.start]
    return scipy.sparse.csr_array((data, indices, ends), shape=(rows.stop - rows.start, num_columns))


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
