"""What evaluation writes about every node, in the order of node ids and under the names the user gave them."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from nfdist import layout
from nfdist.evaluation.gathered_writer import ROWS_AT_ONCE, Columns, rows_in_order, write_gathered_table
from nfdist.model.task import Task
from nfdist.store.schema import Schema
from nfdist.store.source_graph import SPLIT_NAMES
from nfdist.store.store import Store
from nfdist.world import World

PREDICTIONS_FILE = "predictions.parquet"
EMBEDDINGS_FILE = layout.EMBEDDINGS_FILE
FEW = 5  # of the likeliest classes
Pieces = Iterable[tuple[int, slice]]
_SPLITS = pa.array(SPLIT_NAMES, pa.string())
_TAKEN = ("label", "probability", "top_labels", "top_probabilities", "split", "true_label", "embedding")


def write_predictions(
    path: Path,
    store: Store,
    world: World,
    task: Task,
    nodes: range,
    logits: Tensor,
    split: Tensor,
    top_k: int,
    rows_at_once: int = ROWS_AT_ONCE,
    probabilities: bool = False,
    smoothed: bool = False,
) -> None:
    """Write what is predicted of every node beside what is known of it, and whether that is `smoothed`.

    Every rank must call this, with the logits [n, outputs] of its own nodes, whose parts its store must hold, and the
    split of all nodes.
    """

    def make(rows: slice) -> Columns:
        node_ids = _node_ids(nodes, rows)
        names = _SPLITS.take(pa.array(split[node_ids].numpy()))
        schema = store.manifest.schema
        known = {"split": names, "true_label": _truth(store.labels(node_ids), schema)}
        given = answers(task, logits[rows].cpu(), top_k, schema, probabilities)
        told = {"smoothed": pa.array(np.full(len(node_ids), smoothed))}
        return {id_name(schema): original_ids(store, node_ids), **given, **known, **told}

    write_gathered_table(path, world, rows_in_order(world, nodes, rows_at_once), make)


def write_embeddings(
    path: Path,
    store: Store,
    world: World,
    nodes: range,
    hidden: Tensor,
    rows_at_once: int = ROWS_AT_ONCE,
    wanted: Callable[[Pieces], Pieces] = lambda pieces: pieces,
) -> None:
    """Write the last hidden state of every node. Every rank must call this, with those [n, c] of its own nodes.

    Pieces of rows are written for as long as they are `wanted`.
    """

    def make(rows: slice) -> Columns:
        ids = original_ids(store, _node_ids(nodes, rows))
        return {id_name(store.manifest.schema): ids, "embedding": as_lists(hidden[rows].float().cpu())}

    write_gathered_table(path, world, wanted(rows_in_order(world, nodes, rows_at_once)), make)


def answers(task: Task, logits: Tensor, top_k: int, schema: Schema, probabilities: bool = False) -> Columns:
    """Columns of labels and probabilities: the likeliest class and the `top_k` likeliest, or for multi all answers.

    Classes have the names that the user gave them. With `probabilities` there is a column more for each.
    """
    multi = task.kind == "multi"
    likely = logits.sigmoid().float() if multi else logits.softmax(1).float()
    names = schema.names_of(range(task.num_classes))
    spread = (
        {f"probability_{name}": pa.array(likely[:, place].numpy()) for place, name in enumerate(names)}
        if probabilities
        else {}
    )
    if multi:
        return {"label": as_lists((logits > 0).to(torch.int8)), "probability": as_lists(likely), **spread}
    highest, classes = _likeliest(likely, min(top_k, task.num_classes))
    lists = as_lists(classes)
    return {
        "label": _named(pa.array(classes[:, 0].numpy()), schema),
        "probability": pa.array(highest[:, 0].numpy()),
        "top_labels": pa.ListArray.from_arrays(lists.offsets, _named(lists.values, schema)),
        "top_probabilities": as_lists(highest),
        **spread,
    }


def _likeliest(likely: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest entries [n, count] of probabilities [n, classes] and their places, the first of equal ones first.

    For a few of them, as many maxima in a row take half the time of torch's own `topk`.
    """
    if count > FEW:
        return likely.topk(count, 1)
    left, found = likely.clone(), []
    for _ in range(count):
        found.append(left.max(1))
        left.scatter_(1, found[-1].indices[:, None], -1.0)
    return torch.stack([best.values for best in found], 1), torch.stack([best.indices for best in found], 1)


def id_name(schema: Schema) -> str:
    """What the user calls the column of ids, unless answers have a column of that name."""
    return "id" if schema.id_column in _TAKEN or schema.id_column.startswith("probability_") else schema.id_column


def _named(classes: Any, schema: Schema) -> Any:
    """Numbers of classes as the user calls them."""
    return pa.array(schema.class_names).take(classes) if schema.class_names else classes


def as_lists(rows: Tensor) -> Any:
    """Rows [n, k] as an Arrow list of k values each."""
    ends = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(rows.contiguous().flatten().numpy()))


def original_ids(store: Store, node_ids: Tensor) -> Any:
    """What the user calls these nodes, as an Arrow array."""
    return pa.array(store.original_ids(node_ids), pa.int64() if store.manifest.id_type == "int64" else pa.string())


def _node_ids(nodes: range, rows: slice) -> Tensor:
    return torch.arange(nodes.start + rows.start, nodes.start + rows.stop)


def _truth(labels: Tensor, schema: Schema) -> Any:
    """Labels as the user calls them, null where there is none."""
    flat = labels.flatten().numpy()
    values = pa.array(flat, mask=flat < 0)
    if labels.ndim == 1:
        return _named(values, schema)
    ends = np.arange(len(labels) + 1, dtype=np.int32) * labels.shape[1]
    return pa.ListArray.from_arrays(pa.array(ends), values)
