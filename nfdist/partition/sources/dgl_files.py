"""Graphs that DGL wrote: one graph file, or the partition of dgl.distributed.partition_graph put together again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.partition.sources import splits
from nfdist.partition.sources.checking import check_column, check_integers, check_length, reading
from nfdist.partition.sources.options import SourceOptions
from nfdist.partition.sources.raw import RawSource
from nfdist.sparse.dgl_door import dgl

_FEATURES, _LABELS = ("feat", "features"), ("label", "labels")
_ORIGINAL = ("orig_id", "original_id", "original_ids")
_MASKS = {f"{word}_mask": code for word, code in splits.WORDS.items()}


def read_graph(path: Path, name: str, options: SourceOptions) -> RawSource:
    """The one graph of a DGL graph file; edge data is dropped with a note."""
    graph = _load_graph(path)
    sources, targets = (ends.numpy() for ends in graph.edges(order="eid"))
    data = _as_arrays(graph.ndata)
    raw = _from_data(path, name, data, sources, targets, options)
    raw.notes += _note_dropped("edge", graph.edata.keys())
    return raw


def read_partition(path: Path, name: str, options: SourceOptions) -> RawSource:
    """The whole graph of a partition's JSON, from the nodes and edges that each part owns."""
    about = read_about(path)
    with reading(path, IndexError, TypeError):
        ends = np.full((2, about["num_edges"]), -1)
        parts = [_read_part(path.parent, about[f"part-{part}"], ends) for part in range(about["num_parts"])]
        joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        dropped = _note_dropped("edge", _load_tensors(path.parent / about["part-0"]["edge_feats"]))
    for key, values in joined.items():
        check_length(f"{path}: ndata {key}", len(values), about["num_nodes"])
    if not options.id_column and (path.parent / "orig_nids.npy").exists():
        with reading(path.parent / "orig_nids.npy"):
            joined["orig_id"] = np.load(path.parent / "orig_nids.npy", allow_pickle=False)
    raw = _from_data(path, name, joined, ends[0], ends[1], options)
    raw.notes += dropped
    if raw.original_ids is None:
        raw.notes.append(
            "the partition does not say what its nodes were called before: ids are those DGL gave them (keep the "
            "others as ndata orig_id, or save return_mapping's first result beside the JSON as orig_nids.npy)"
        )
    return raw


def _read_part(folder: Path, files: dict[str, str], ends: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The data of the nodes that a part owns; its own edges are written into `ends` [2, edges] at their numbers."""
    graph = _load_graph(folder / files["part_graph"])
    nodes, numbers = graph.ndata["_ID"].numpy(), graph.edata["_ID"].numpy()
    inner_nodes, inner_edges = graph.ndata["inner_node"].numpy() == 1, graph.edata["inner_edge"].numpy() == 1
    for row, local in zip(ends, graph.edges(order="eid"), strict=True):
        row[numbers[inner_edges]] = nodes[local.numpy()[inner_edges]]
    data = _load_tensors(folder / files["node_feats"])
    if "orig_id" in graph.ndata:  # as some versions of DGL write it
        data.setdefault("orig_id", graph.ndata["orig_id"].numpy()[inner_nodes])
    return data


def read_about(path: Path) -> dict[str, Any]:
    """The JSON of a partition, checked to be one of a graph with a single type of nodes and edges."""
    with reading(path):
        about = json.loads(path.read_text())
    wanted = {"num_nodes", "num_edges", "num_parts", "part-0"}
    if not isinstance(about, dict) or not wanted <= about.keys():
        raise PartitionError(f"{path} is not the JSON of dgl.distributed.partition_graph: name that one")
    if len(about.get("ntypes", "?")) != 1 or len(about.get("etypes", "?")) != 1:
        raise PartitionError(f"{path} has several types of nodes or edges: partition a homogeneous graph")
    missing = [part for part in range(about["num_parts"]) if f"part-{part}" not in about]
    if missing:
        raise PartitionError(f"{path} does not name the files of part {missing[0]}: partition the graph again")
    return about


def measure_graph(path: Path, options: SourceOptions) -> tuple[int, int, NDArray[Any]]:
    """The numbers of nodes and edges of a graph file, and its features."""
    graph = _load_graph(path)
    data = _as_arrays(graph.ndata)
    return graph.num_nodes(), graph.num_edges(), _pick_features(path, data, options)


def measure_partition(path: Path, options: SourceOptions) -> tuple[int, int, NDArray[Any]]:
    """The numbers of nodes and edges of a partition, and the features of its first part."""
    about = read_about(path)
    data = _load_tensors(path.parent / about["part-0"]["node_feats"])
    return about["num_nodes"], about["num_edges"], _pick_features(path, data, options)


def _from_data(
    path: Path, name: str, data: dict[str, NDArray[Any]], sources: Any, targets: Any, options: SourceOptions
) -> RawSource:
    features = _pick_features(path, data, options)
    label = _pick(path, options.label_column, _LABELS, data)
    ids = _pick(path, options.id_column, _ORIGINAL, data)
    split = _pick(path, options.split_column, ("split",), data)
    masks = {} if split else {key: code for key, code in _MASKS.items() if key in data}
    members = {code: data[key].astype(np.bool_) for key, code in masks.items()}
    notes = []
    if split:
        check_integers(f"{path}: ndata {split}", data[split])
        members = splits.from_codes(data[split], str(path))
        notes.append(splits.CODES_NOTE)
    if ids:
        check_integers(f"{path}: ndata {ids}", data[ids])
    used = {label, ids, split, *masks, *(options.feature_columns or _FEATURES), "_ID", "_TYPE"}
    notes += _note_dropped("node", [key for key in data if key not in used])
    labels = data[label] if label else None
    return RawSource(
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
    return np.concatenate([data[key].reshape(len(data[key]), -1) for key in names], axis=1)


def _pick(path: Path, wanted: str, usual: tuple[str, ...], data: dict[str, NDArray[Any]]) -> str:
    if wanted:
        check_column(str(path), wanted, data)
        return wanted
    return next((key for key in usual if key in data), "")


def _note_dropped(what: str, keys: Any) -> list[str]:
    dropped = [key for key in keys if key not in ("_ID", "_TYPE")]
    return [f"dropped {what} data: {', '.join(dropped)}"] if dropped else []


def _load_graph(path: Path) -> Any:
    if not path.exists():
        raise PartitionError(f"{path} does not exist: check the path, or copy the file there")
    with reading(path, dgl().DGLError):
        graphs, _ = dgl().load_graphs(str(path))
    if len(graphs) != 1:
        raise PartitionError(f"{path} holds {len(graphs)} graphs: save the one to partition alone")
    if not graphs[0].is_homogeneous:
        raise PartitionError(
            f"{path} has several types of nodes or edges: make it homogeneous first (dgl.to_homogeneous)"
        )
    return graphs[0]


def _load_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """A part's tensors by name, without the type of node or edge that DGL puts before it."""
    if not path.exists():
        raise PartitionError(f"{path} does not exist: check the path, or copy the file there")
    with reading(path, dgl().DGLError):
        tensors = dgl().data.utils.load_tensors(str(path))
    return _as_arrays({key.rsplit("/", 1)[-1]: tensor for key, tensor in tensors.items()})


def _as_arrays(tensors: Any) -> dict[str, NDArray[Any]]:
    # numpy has no bfloat16.
    return {
        key: (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
        for key, tensor in tensors.items()
    }
