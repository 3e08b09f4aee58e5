"""dgl, dgl-partition: one graph that DGL wrote, or a partition of dgl.distributed.partition_graph joined again."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.partitioning.sources import dgl_binary, splits
from nfdist.partitioning.sources.archive import read_npy
from nfdist.partitioning.sources.feature_rows import stored_dtype
from nfdist.partitioning.sources.formats.source_format import SourceCounts, SourceFormat, has_suffix, register
from nfdist.partitioning.sources.options import NODE_COLUMNS, SourceOptions
from nfdist.partitioning.sources.raw_graph import RawGraph
from nfdist.partitioning.sources.validation import check_edges, check_integers, check_length, check_range
from nfdist.partitioning.workspace import Workspace
from nfdist.reading import reading
from nfdist.store.schema import EDGE_WEIGHT
from nfdist.store.table_files import check_column

_FEATURES, _LABELS = ("feat", "features"), ("label", "labels")
_ORIGINAL = ("orig_id", "original_id", "original_ids")
_COUNTS, _FILES = ("nodes", "edges", "parts"), ("part_graph", "node_feats", "edge_feats")
_MASKS = {f"{word}_mask": code for word, code in splits.WORDS.items()}


def read_graph(path: Path, name: str, options: SourceOptions, workspace: Workspace) -> RawGraph:
    """The one graph of a DGL graph file; edge data is dropped with a note, except weights."""
    graph = _load_graph(path)
    check_edges(str(path), graph.sources, graph.targets, graph.num_nodes)
    raw = _from_data(path, name, graph.node_data, graph.sources, graph.targets, options)
    raw.weights = graph.edge_data.get(EDGE_WEIGHT)
    raw.notes += _note_dropped("edge", [key for key in graph.edge_data if key != EDGE_WEIGHT])
    return raw


def read_partition(path: Path, name: str, options: SourceOptions, workspace: Workspace) -> RawGraph:
    """The whole graph of a partition's JSON, from the nodes and edges that each part owns."""
    about = read_about(path)
    ends = np.full((2, about.num_edges), -1)
    parts = [_read_part(path.parent, files, ends, about.num_nodes) for files in about.parts]
    for key in parts[0]:
        for number, part in enumerate(parts):
            if key not in part or part[key].shape[1:] != parts[0][key].shape[1:]:
                raise PartitionError(
                    f"{path}: ndata {key} of part {number} is not like that of part 0: partition again"
                )
    joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    for key, values in joined.items():
        check_length(f"{path}: ndata {key}", len(values), about.num_nodes)
    unknown = np.flatnonzero(ends[0] < 0)
    if len(unknown):
        raise PartitionError(f"{path}: {len(unknown)} edges are in no part, the first is {unknown[0]}: partition again")
    dropped = _note_dropped("edge", _load_tensors(path.parent / about.parts[0]["edge_feats"]))
    if not options.id_column and (path.parent / "orig_nids.npy").exists():
        joined["orig_id"] = read_npy(path.parent / "orig_nids.npy")
    raw = _from_data(path, name, joined, ends[0], ends[1], options)
    raw.notes += dropped
    if raw.original_ids is None:
        raw.notes.append(
            "the partition does not say what its nodes were called before: ids are those DGL gave them (keep the "
            "others as ndata orig_id, or save return_mapping's first result beside the JSON as orig_nids.npy)"
        )
    return raw


def _read_part(folder: Path, files: dict[str, str], ends: NDArray[Any], num_nodes: int) -> dict[str, NDArray[Any]]:
    """The data of the nodes that a part owns; its own edges are written into `ends` [2, edges] at their numbers."""
    path = folder / files["part_graph"]
    graph = _load_graph(path)
    for key, data in (("_ID", graph.node_data), ("inner_node", graph.node_data), ("_ID", graph.edge_data)):
        _check_listed(path, key, data)
    _check_listed(path, "inner_edge", graph.edge_data)
    nodes, numbers = graph.node_data["_ID"], graph.edge_data["_ID"]
    inner_nodes, inner_edges = graph.node_data["inner_node"] == 1, graph.edge_data["inner_edge"] == 1
    check_edges(str(path), graph.sources, graph.targets, graph.num_nodes)
    check_range(f"{path}: ndata _ID", nodes, num_nodes, "nodes")
    check_range(f"{path}: edata _ID", numbers, ends.shape[1], "edges")
    for row, local in zip(ends, (graph.sources, graph.targets), strict=True):
        row[numbers[inner_edges]] = nodes[local[inner_edges]]
    data = _load_tensors(folder / files["node_feats"])
    if "orig_id" in graph.node_data:  # as some versions of DGL write it
        data.setdefault("orig_id", graph.node_data["orig_id"][inner_nodes])
    return data


def _check_listed(path: Path, key: str, data: dict[str, NDArray[Any]]) -> None:
    if key not in data or data[key].ndim != 1:
        raise PartitionError(f"{path} is no part of a partition, it has no list {key}: partition the graph again")
    check_integers(f"{path}: {key}", data[key])


@dataclass(frozen=True)
class About:
    """What the JSON of a partition says: the counts of the whole graph, and the files of each part by their kind."""

    num_nodes: int
    num_edges: int
    parts: list[dict[str, str]]


def read_about(path: Path) -> About:
    """The JSON of a partition, checked to be one of a graph with a single type of nodes and edges."""
    with reading(path):
        about = json.loads(path.read_bytes())
    counts = [about.get(f"num_{what}") for what in _COUNTS] if isinstance(about, dict) else [None]
    if not all(type(count) is int and count >= 0 for count in counts) or about["num_parts"] < 1:
        raise PartitionError(f"{path} is not the JSON of dgl.distributed.partition_graph: name that one")
    for kinds in (about.get("ntypes"), about.get("etypes")):
        if not isinstance(kinds, dict | list) or len(kinds) != 1:
            raise PartitionError(f"{path} has several types of nodes or edges: partition a homogeneous graph")
    parts = []
    for number in range(about["num_parts"]):
        files = about.get(f"part-{number}")
        if not isinstance(files, dict) or not all(isinstance(files.get(kind), str) for kind in _FILES):
            raise PartitionError(f"{path} does not name the files of part {number}: partition the graph again")
        parts.append(files)
    with reading(path):
        num_bytes = sum((path.parent / files["part_graph"]).stat().st_size for files in parts)
    if about["num_nodes"] + about["num_edges"] > num_bytes:  # each takes more than a byte
        raise PartitionError(
            f"{path} counts {about['num_nodes']:,} nodes and {about['num_edges']:,} edges, more than its parts of "
            f"{num_bytes:,} bytes can hold: partition the graph again"
        )
    return About(about["num_nodes"], about["num_edges"], parts)


def count_graph(path: Path, options: SourceOptions) -> SourceCounts:
    """The counts of a graph file, which is read for them."""
    graph = _load_graph(path)
    return _counts(graph.num_nodes, len(graph.sources), _pick_features(path, graph.node_data, options))


def count_partition(path: Path, options: SourceOptions) -> SourceCounts:
    """The counts of a partition, from its JSON and the features of its first part."""
    about = read_about(path)
    data = _load_tensors(path.parent / about.parts[0]["node_feats"])
    return _counts(about.num_nodes, about.num_edges, _pick_features(path, data, options))


def _counts(num_nodes: int, num_edges: int, rows: NDArray[Any]) -> SourceCounts:
    return SourceCounts(num_nodes, num_edges, math.prod(rows.shape[1:]), None, stored_dtype(rows.dtype))


def _from_data(
    path: Path, name: str, data: dict[str, NDArray[Any]], sources: Any, targets: Any, options: SourceOptions
) -> RawGraph:
    features = _pick_features(path, data, options)
    label = _pick(path, options.label_column, _LABELS, data)
    ids = _pick(path, options.id_column, _ORIGINAL, data)
    split = _pick(path, options.split_column, ("split",), data)
    masks = {} if split else {key: code for key, code in _MASKS.items() if key in data}
    members = {code: splits.as_mask(data[key], f"{path}: ndata {key}") for key, code in masks.items()}
    notes = []
    if split:
        check_integers(f"{path}: ndata {split}", data[split])
        if data[split].ndim != 1:
            raise PartitionError(f"{path}: ndata {split} must be a number a node, got shape {list(data[split].shape)}")
        members = splits.from_codes(data[split], str(path))
        notes.append(splits.CODES_NOTE)
    if ids:
        check_integers(f"{path}: ndata {ids}", data[ids])
    used = {label, ids, split, *masks, *(options.feature_columns or _FEATURES), "_ID", "_TYPE"}
    notes += _note_dropped("node", [key for key in data if key not in used])
    labels = data[label] if label else None
    return RawGraph(
        name, sources, targets, features, labels, data[ids] if ids else None, members=members or None, notes=notes
    )


def _pick_features(path: Path, data: dict[str, NDArray[Any]], options: SourceOptions) -> NDArray[Any]:
    names = options.feature_columns or tuple(key for key in _FEATURES if key in data)[:1]
    for key in names:
        check_column(str(path), key, data)
    if not names:
        raise PartitionError(
            f"{path} has no features: store them as ndata feat, or name them; it has {', '.join(data)}"
        )
    if len(names) == 1:
        return data[names[0]]
    for key in names:
        check_length(f"{path}: ndata {key}", len(data[key]), len(data[names[0]]))
    return np.concatenate([data[key].reshape(len(data[key]), math.prod(data[key].shape[1:])) for key in names], axis=1)


def _pick(path: Path, wanted: str, usual: tuple[str, ...], data: dict[str, NDArray[Any]]) -> str:
    if wanted:
        check_column(str(path), wanted, data)
        return wanted
    return next((key for key in usual if key in data), "")


def _note_dropped(what: str, keys: Any) -> list[str]:
    dropped = [key for key in keys if key not in ("_ID", "_TYPE")]
    return [f"dropped {what} data: {', '.join(dropped)}"] if dropped else []


def _load_graph(path: Path) -> dgl_binary.DglGraph:
    with reading(path):
        return dgl_binary.read_graph(path)


def _load_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """A part's tensors by name, without the type of node or edge that DGL puts before it."""
    with reading(path):
        tensors = dgl_binary.read_tensors(path)
        for key, values in tensors.items():
            if values.ndim == 0:
                raise ValueError(f"data {key!r} is a single number")
    return {key.rsplit("/", 1)[-1]: values for key, values in tensors.items()}


_PATHS = "a DGL graph (.bin, .dgl)", "a partition's .json"
register(SourceFormat("dgl", 40, read_graph, count_graph, has_suffix(".bin", ".dgl"), _PATHS[0], options=NODE_COLUMNS))
register(
    SourceFormat(
        "dgl-partition", 50, read_partition, count_partition, has_suffix(".json"), _PATHS[1], options=NODE_COLUMNS
    )
)
