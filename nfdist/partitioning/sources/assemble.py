"""From what a reader found to a checked SourceGraph: ids, features, edges, labels, task and split."""

from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

from nfdist.collectives import agree, total
from nfdist.config import parse_fractions
from nfdist.errors import PartitionError
from nfdist.files import checksum_of
from nfdist.partitioning.sources import feature_rows, splits, validation
from nfdist.partitioning.sources.inference import TableFeatures
from nfdist.partitioning.sources.options import SourceOptions
from nfdist.partitioning.sources.raw_graph import RawGraph
from nfdist.partitioning.workspace import Workspace
from nfdist.reading import reading
from nfdist.scratch import Scratch
from nfdist.store.columns import as_ids
from nfdist.store.encoding import normalize_rows
from nfdist.store.schema import Schema
from nfdist.store.source_graph import TRAIN, SourceGraph, draw_split
from nfdist.world import World

_LARGEST_WHOLE = 1 << 53  # the floats beyond are all whole


def assemble(raw: RawGraph, options: SourceOptions, workspace: Workspace) -> SourceGraph:
    """The checked graph of what was read. Every rank must call this."""
    world = workspace.world
    if world.size > 1:
        _refuse_whole(raw, options)
        raw = raw if raw.shares is not None else raw.shared(world)
    table = raw.features if isinstance(raw.features, TableFeatures) else None
    rows: Any = None if table else feature_rows.prepare(raw.features, raw.name, workspace.scratch, world)
    num_nodes = raw.shares.num_rows if raw.shares else rows.shape[0]
    validation.check_not_empty(raw.name, num_nodes)
    original_ids = np.arange(num_nodes) if raw.original_ids is None else raw.original_ids
    if raw.original_ids is not None:
        validation.check_ids(raw.name, original_ids)
    validation.check_length(f"{raw.name}: the list of node ids", len(original_ids), num_nodes)
    labels, task, num_classes = _convert_labels(raw, original_ids, options.task)
    split = _choose_split(raw, labels, options)
    own_ids = original_ids if raw.shares is None else original_ids[raw.shares.own]
    names = {**raw.names, "normalize": options.normalize_features}
    if table:
        with reading(table.rows.name):  # texts may be none that can be decoded
            encoded, columns, unused = table.encoded(split == TRAIN, workspace.scratch)
        rows = feature_rows.prepare(encoded, raw.name, workspace.scratch, world)
        schema = Schema(columns, unused=unused, **names)
    else:
        validation.check_features(raw.name, rows, own_ids, world)
        schema = Schema.of_matrix(rows.shape[1], str(rows.dtype), **names)
    rows = _normalized(raw.name, rows, schema, own_ids, world)
    ends = _choose_edges(raw, rows, schema, options.knn, workspace, num_nodes)
    _check_alike(world, original_ids, labels, split)
    weights = None if options.knn else raw.weights
    if weights is not None:
        validation.check_weights(raw.name, weights, ends, original_ids, world)
        raw.notes.append("edge weights are stored, and used only where relation.weights=true asks for them")
    return SourceGraph(
        raw.name,
        original_ids,
        *ends,
        rows,
        labels,
        split,
        task,
        num_classes,
        tuple(raw.notes),
        schema,
        weights,
        raw.shares,
        raw.first_edge,
    )


def _check_alike(world: World, original_ids: Any, *facts: NDArray[Any]) -> None:
    """Refuse hosts whose files have the same sizes and tell different things."""
    if world.size > 1:
        found = checksum_of(b"".join(checksum_of(np.ascontiguousarray(one)).encode() for one in facts))
        ids = "".join(checksum_of(buffer) for buffer in as_ids(original_ids).buffers() if buffer is not None)
        agree(world, {"nodes with labels and splits of checksum": found, "ids of nodes of checksum": ids})


def _refuse_whole(raw: RawGraph, options: SourceOptions) -> None:
    """Refuse what only one process can do."""
    if options.knn:
        raise PartitionError(f"{raw.name}: --knn {options.knn} is worked out by one process: start it without torchrun")


def _normalized(name: str, rows: Any, schema: Schema, original_ids: NDArray[Any], world: World) -> Any:
    if schema.normalize != "row":
        return rows
    _refuse_gaps(name, schema, "rows with gaps have no sum (normalize_features)")
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        rows = normalize_rows(rows)
    validation.check_features(f"{name} with normalized rows", rows, original_ids, world)
    return rows


def _refuse_gaps(name: str, schema: Schema, why: str) -> None:
    for column in schema.columns:
        if column.may_have_gaps and column.missing:
            raise PartitionError(f"{name}: column {column.name!r} has {column.missing:,} gaps, and {why}: fill them")


def _convert_labels(raw: RawGraph, original_ids: NDArray[Any], wanted: str) -> tuple[NDArray[Any], str, int]:
    """Labels as integers with -1 for none, the task they make, and its number of classes or questions."""
    num_nodes = len(original_ids)
    if raw.labels is None:
        raw.notes.append("the source has no labels")
        return np.full(num_nodes, -1), wanted or "single", raw.num_classes
    if raw.labels.ndim not in (1, 2) or raw.labels.shape[1:] == (0,):
        raise PartitionError(f"{raw.name}: labels must be [n] or [n, questions], got {list(raw.labels.shape)}")
    validation.check_length(f"{raw.name}: the list of labels", len(raw.labels), num_nodes)
    labels = _as_integers(raw.labels, raw.name, original_ids)
    if labels.ndim == 2 and labels.shape[1] == 1 and wanted != "multi":
        labels = labels[:, 0]
    task = wanted or ("single" if labels.ndim == 1 else "multi")
    if labels.ndim != (2 if task == "multi" else 1):
        raise PartitionError(
            f"{raw.name}: a {task} task needs labels {'[n, questions]' if task == 'multi' else '[n]'}, "
            f"got {list(labels.shape)}"
        )
    validation.check_labels(raw.name, labels, 0 if task == "single" else 2, original_ids)
    if task == "multi":
        return labels.astype(np.int8), task, labels.shape[1]
    labels = labels.astype(np.int64, copy=False)
    largest = int(labels.max(initial=-1))
    if largest >= 0 and int(labels.min(where=labels >= 0, initial=largest)) == largest:
        raw.notes.append(f"all labels are {largest}: there is nothing to tell apart, so scores will say nothing")
    shown = max(largest + 1, raw.num_classes)
    return labels, task, 2 if task == "binary" else shown


def _as_integers(labels: NDArray[Any], name: str, original_ids: NDArray[Any]) -> NDArray[Any]:
    if labels.dtype == np.bool_:
        return labels.astype(np.int8)
    if labels.dtype.kind == "f":  # how pandas writes integers of which some are missing
        with np.errstate(over="ignore"):  # what overflows is infinite, and refused as such
            labels = labels.astype(np.float64)  # float16 cannot even be compared with large numbers
        missing = np.isnan(labels)
        fractions = np.argwhere(~missing & ((np.floor(labels) != labels) | (np.abs(labels) > _LARGEST_WHOLE)))
        if len(fractions):
            raise PartitionError(
                f"{name}: labels must be integers, got {labels[tuple(fractions[0])]} "
                f"at node {original_ids[fractions[0][0]]!s}"
            )
        return np.where(missing, -1, labels).astype(np.int64)
    validation.check_integers(f"{name}: labels", labels)
    return labels


def _choose_split(raw: RawGraph, labels: NDArray[Any], options: SourceOptions) -> NDArray[np.int8]:
    if options.split == "official" and raw.members is None:
        raise PartitionError(f"{raw.name} has no official split: choose split {splits.DEFAULT_RANDOM}")
    if raw.members is not None and options.split in (None, "official"):
        return splits.official(raw.members, len(labels), options.split_index, raw.name)
    if options.split_index:
        raise PartitionError(
            f"split_index {options.split_index} is for official splits, and {raw.name} gets a random one"
        )
    labeled = (labels >= 0).reshape(len(labels), -1).any(axis=1)
    if options.split is None:
        raw.notes.append(splits.DRAWN_NOTE)
    fractions = parse_fractions("split", options.split or splits.DEFAULT_RANDOM, "official")
    return draw_split(np.asarray(labeled), fractions, options.seed)


def _choose_edges(
    raw: RawGraph, rows: Any, schema: Schema, neighbors: int, workspace: Workspace, num_nodes: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    world, scratch = workspace.world, workspace.scratch
    if neighbors:
        if len(raw.sources):
            raw.notes.append(f"{len(raw.sources)} edges are replaced by a {neighbors}-nearest-neighbor graph")
        _refuse_gaps(raw.name, schema, "distances to gaps are unknown (knn)")
        return _nearest_neighbors(rows, neighbors)
    validation.check_edges(raw.name, raw.sources, raw.targets, num_nodes, world)
    if not int(total(world, torch.tensor([len(raw.sources)]), "edges")):
        raw.notes.append("the source has no edges (a graph can be made from its features: --knn K)")
    return _signed(raw.sources, scratch), _signed(raw.targets, scratch)


def _signed(ends: NDArray[Any], scratch: Scratch) -> NDArray[Any]:
    # A short number would be compared with the count of nodes in its own type.
    if ends.dtype in (np.int32, np.int64):
        return ends
    signed = scratch.array(len(ends), np.int64)
    signed[:] = ends
    return signed


def _nearest_neighbors(rows: Any, neighbors: int) -> tuple[NDArray[Any], NDArray[Any]]:
    from nfdist.sparse.knn import knn_graph  # imported late: most sources need no torch

    # scikit-learn knows no newer kind of sparse rows, and distances in float16 would overflow.
    known = scipy.sparse.csr_matrix(rows) if scipy.sparse.issparse(rows) else rows.astype(np.float32, copy=False)
    graph = knn_graph(known, neighbors)
    return graph.sources.numpy(), graph.targets.numpy()
