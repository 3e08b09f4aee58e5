"""Inputs that are whole files with a content that makes no sense: arrays, tables and JSON of the wrong kind.

An entry says which source it changes, how, and whether the result must be refused; of the others it is only known
that they must not end in a traceback, in a broken partition or out of memory.
"""

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.faults import sources


@dataclass(frozen=True)
class Mutation:
    """`change` works on a copy of the source; `words` are added to the command."""

    source: str
    change: Callable[[Path], None]
    refused: bool
    words: tuple[str, ...] = ()


def _npz(
    change: Callable[[dict[str, Any]], Any], refused: bool = True, source: str = "graph.npz", *words: str
) -> Mutation:
    def write(path: Path) -> None:
        with np.load(path) as stored:
            arrays = dict(stored)
        change(arrays)
        np.savez(path, **arrays)

    return Mutation(source, write, refused, words)


def _set(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda arrays: arrays.update({key: value(arrays[key]) if callable(value) else value})


def _at(key: str, place: Any, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda arrays: arrays[key].__setitem__(place, value)


def _sparse(key: str, value: Any, refused: bool = True) -> Mutation:
    return _npz(_set(f"feat_{key}", value), refused, "sparse.npz")


def _ids(ids: Any, refused: bool = True) -> Mutation:
    return _npz(_set("ids", ids), refused, "graph.npz", "--id-column", "ids")


def _huge_header(path: Path) -> None:
    """An array that says to be a petabyte."""
    with np.load(path) as stored:
        arrays = dict(stored)
    arrays.pop("feat")
    np.savez(path, **arrays)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2**45, 8)})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("feat.npy", header.getvalue() + bytes(4000))


def _nodes(change: Callable[[pa.Table], pa.Table], refused: bool = True, file: str = "nodes.parquet") -> Mutation:
    def write(folder: Path) -> None:
        pq.write_table(change(pq.read_table(folder / file)), folder / file)

    return Mutation("tables", write, refused)


def _edges(change: Callable[[pa.Table], pa.Table], refused: bool = True) -> Mutation:
    return _nodes(change, refused, "edges.parquet")


def _new(change: Callable[[pa.Table], pa.Table], refused: bool = True) -> Mutation:
    def write(path: Path) -> None:
        pq.write_table(change(pq.read_table(path)), path)

    return Mutation("new-words.parquet", write, refused)


def _column(name: str, values: Callable[[list[Any]], Any]) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        made = values(table.column(name).to_pylist())
        made = made if isinstance(made, pa.Array) else pa.array(made)
        return table.set_column(table.column_names.index(name), name, made)

    return change


def _with(place: int, value: Any) -> Callable[[list[Any]], Any]:
    return lambda values: [*values[:place], value, *values[place + 1 :]]


def _twice(name: str) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.append_column(name, table.column(name))


def _csv(old: str, new: str, refused: bool, file: str = "nodes.csv") -> Mutation:
    """Replace text in the sixth line, or the first for what stands there."""

    def write(folder: Path) -> None:
        lines = (folder / file).read_text().splitlines()
        row = 0 if old == "header" else 5
        cells = lines[row].split(",")
        lines[row] = new if old in ("line", "header") else ",".join([*cells[:-1], new])
        (folder / file).write_bytes("\n".join(lines).encode("latin-1") + b"\n")

    return Mutation("csv", write, refused)


def _json(**values: Any) -> Mutation:
    def write(folder: Path) -> None:
        path = folder / "parts" / "toy.json"
        content = json.loads(path.read_text())
        for key, value in values.items():
            content[key.replace("_0", "-0")] = value
        path.write_text(json.dumps(content))

    return Mutation("dgl-parts", write, True)


def _stamps(values: list[Any]) -> pa.Array:
    return pa.array([datetime(2024, 1, 1 + number % 28, number % 24) for number in range(len(values))])


N = sources.NODES
MUTATIONS = {
    "label-2^30": _npz(_at("label", 7, 2**30)),
    "label-million": _npz(_at("label", 7, 10**6)),
    "label-2^62": _npz(_at("label", 7, 2**62)),
    "label-below": _npz(_at("label", 7, -7), False),
    "label-fractions": _npz(_set("label", lambda label: label + 0.5)),
    "label-nan": _npz(_set("label", lambda label: np.where(label == 0, np.nan, label)), False),
    "label-3d": _npz(_set("label", lambda label: label.reshape(-1, 1, 1))),
    "label-0d": _npz(_set("label", np.array(3))),
    "label-short": _npz(_set("label", lambda label: label[:-1])),
    "label-words": _npz(_set("label", lambda label: label.astype(str)), False),
    "edge-beyond": _npz(_at("edge_index", (0, 3), N)),
    "edge-far": _npz(_at("edge_index", (1, 3), 2**40)),
    "edge-negative": _npz(_at("edge_index", (0, 3), -1)),
    "edge-fractions": _npz(_set("edge_index", lambda ends: ends + 0.5)),
    "edge-three": _npz(_set("edge_index", lambda ends: np.vstack([ends, ends[:1]]))),
    "edge-0d": _npz(_set("edge_index", np.array(1))),
    "feat-1d": _npz(_set("feat", lambda feat: feat[:, 0]), False),
    "feat-3d": _npz(_set("feat", lambda feat: feat[..., None]), False),
    "feat-0d": _npz(_set("feat", np.array(1.0))),
    "feat-short": _npz(_set("feat", lambda feat: feat[:-1])),
    "feat-complex": _npz(_set("feat", lambda feat: feat * 1j)),
    "feat-words": _npz(_set("feat", lambda feat: feat.astype(str))),
    "feat-objects": _npz(_set("feat", lambda feat: feat.astype(object))),
    "feat-nan": _npz(_at("feat", (3, 2), np.nan)),
    "feat-inf": _npz(_at("feat", (3, 2), np.inf)),
    "feat-1e300": _npz(_set("feat", lambda feat: np.where(feat > 2, 1e300, feat.astype(np.float64)))),
    "feat-no-columns": _npz(_set("feat", lambda feat: feat[:, :0]), False),
    "feat-petabyte": Mutation("graph.npz", _huge_header, True),
    "ids-2d": _ids(np.arange(2 * N).reshape(N, 2)),
    "ids-twice": _ids(np.arange(N) // 2),
    "ids-fractions": _ids(np.arange(N) + 0.5),
    "ids-dates": _ids(np.arange(N).astype("datetime64[s]")),
    "ids-bytes": _ids(np.arange(N).astype("S4"), False),
    "ids-0d": _ids(np.array(1)),
    "train-idx-beyond": _npz(_at("train_idx", 0, N)),
    "train-idx-fractions": _npz(_set("train_idx", lambda idx: idx + 0.5)),
    "train-idx-0d": _npz(_set("train_idx", np.array(1)), False),
    "splits-overlap": _npz(lambda arrays: arrays.update(test_idx=arrays["train_idx"])),
    "no-arrays": _npz(lambda arrays: arrays.clear()),
    "csr-0d": _sparse("indptr", np.array(0)),
    "csr-data-0d": _sparse("data", np.array(1.0)),
    "csr-shape-0d": _sparse("shape", np.array(5)),
    "csr-shape-huge": _sparse("shape", np.array([10**12, 10**12])),
    "csr-shape-wide": _sparse("shape", lambda shape: np.array([shape[0], 10**12]), False),
    "csr-shape-negative": _sparse("shape", lambda shape: -shape),
    "csr-backwards": _sparse("indptr", lambda indptr: np.where(np.arange(len(indptr)) == 5, 10**6, indptr)),
    "csr-index-beyond": _sparse("indices", lambda indices: indices + 10**6),
    "csr-index-negative": _sparse("indices", lambda indices: indices - 1000),
    "csr-nan": _sparse("data", lambda data: data * np.nan),
    "node-ids-list": _nodes(_column("id", lambda ids: [[one] for one in ids])),
    "node-ids-struct": _nodes(_column("id", lambda ids: [{"a": one} for one in ids])),
    "node-ids-dates": _nodes(_column("id", _stamps)),
    "node-ids-twice": _nodes(_column("id", _with(3, "node-000"))),
    "node-ids-null": _nodes(_column("id", _with(3, None))),
    "node-ids-fractions": _nodes(_column("id", lambda ids: [0.5 + number for number in range(len(ids))])),
    "node-ids-binary": _nodes(_column("id", lambda ids: [one.encode() for one in ids]), False),
    "two-id-columns": _nodes(_twice("id")),
    "two-label-columns": _nodes(_twice("label")),
    "two-feature-columns": _nodes(_twice("features")),
    "features-ragged": _nodes(_column("features", _with(3, [1.0]))),
    "features-null": _nodes(_column("features", _with(3, None))),
    "features-words": _nodes(_column("features", lambda rows: [["x"] * 12 for _ in rows])),
    "features-nested": _nodes(_column("features", lambda rows: [[row] for row in rows])),
    "features-struct": _nodes(_column("features", lambda rows: [{"a": row} for row in rows])),
    "features-inf": _nodes(_column("features", _with(3, [float("inf")] * 12))),
    "node-label-2^30": _nodes(_column("label", _with(3, 2**30))),
    "node-label-dates": _nodes(_column("label", _stamps)),
    "node-label-ragged": _nodes(_column("label", lambda label: [[one] * (1 + one) for one in label])),
    "node-label-struct": _nodes(_column("label", lambda label: [{"a": one} for one in label])),
    "split-unknown": _nodes(_column("split", _with(3, "holdout"))),
    "split-lists": _nodes(_column("split", lambda split: [[one] for one in split])),
    "no-rows": _nodes(lambda table: table.slice(0, 0)),
    "edges-unknown": _edges(_column("source", _with(3, "nobody"))),
    "edges-null": _edges(_column("source", _with(3, None))),
    "edges-lists": _edges(_column("source", lambda ends: [[one] for one in ends])),
    "edges-structs": _edges(_column("target", lambda ends: [{"a": one} for one in ends])),
    "edges-numbers": _edges(_column("source", lambda ends: list(range(len(ends))))),
    "edges-dates": _edges(_column("target", _stamps)),
    "two-source-columns": _edges(_twice("source")),
    "edges-no-rows": _edges(lambda table: table.slice(0, 0), False),
    "csv-word": _csv("cell", "seven", True),
    "csv-inf": _csv("cell", "inf", True),
    "csv-nan": _csv("cell", "nan", False),  # a gap, as the next one
    "csv-empty": _csv("cell", "", False),
    "csv-nul": _csv("cell", "1\0", True),
    "csv-quote": _csv("cell", '"1', True),
    "csv-more-cells": _csv("cell", "1,2,3", True),
    "csv-latin": _csv("line", "\xe9\xe8,0,train,1,2,3,4", False),
    "csv-header-twice": _csv("header", "id,label,split,x0,x1,x2,x2", True),
    "csv-header-empty": _csv("header", ",,,,,,", False),
    "csv-edge-word": _csv("line", "node-000,nobody", True, "edges.csv"),
    "csv-edge-cells": _csv("line", "node-000", True, "edges.csv"),
    "dgl-parts-many": _json(num_parts=10**9),
    "dgl-parts-none": _json(num_parts=0),
    "dgl-parts-negative": _json(num_parts=-1),
    "dgl-parts-word": _json(num_parts="2"),
    "dgl-parts-fraction": _json(num_parts=2.5),
    "dgl-edges-many": _json(num_edges=10**12),
    "dgl-edges-negative": _json(num_edges=-1),
    "dgl-edges-word": _json(num_edges="x"),
    "dgl-edges-few": _json(num_edges=3),
    "dgl-edges-more": _json(num_edges=sources.EDGES + 5),
    "dgl-nodes-many": _json(num_nodes=10**12),
    "dgl-nodes-word": _json(num_nodes="x"),
    "dgl-part-null": _json(part_0=None),
    "dgl-part-list": _json(part_0=[]),
    "dgl-part-empty": _json(part_0={}),
    "dgl-part-numbers": _json(part_0={"part_graph": 1, "node_feats": 2, "edge_feats": 3}),
    "dgl-types-null": _json(ntypes=None),
    "dgl-types-number": _json(etypes=1),
    "new-twice": _new(_column("id", _with(2, "new-1"))),
    "new-dates": _new(_column("id", _stamps)),
    "new-ids-list": _new(_column("id", lambda ids: [[one] for one in ids])),
    "new-ids-struct": _new(_column("id", lambda ids: [{"a": one} for one in ids])),
    "new-ids-null": _new(_column("id", _with(2, None))),
    "new-two-id-columns": _new(_twice("id")),
    "new-two-feature-columns": _new(_twice("features")),
    "new-neighbors-struct": _new(_column("neighbors", lambda rows: [{"a": row} for row in rows])),
    "new-neighbors-structs": _new(_column("neighbors", lambda rows: [[{"a": 1}] for row in rows])),
    "new-neighbors-nested": _new(_column("neighbors", lambda rows: [[["node-000"]] for row in rows])),
    "new-neighbors-unknown": _new(_column("neighbors", _with(2, ["nobody"]))),
    "new-neighbors-numbers": _new(_column("neighbors", lambda rows: [[1] for _ in rows])),
    "new-neighbors-null": _new(_column("neighbors", _with(2, [None]))),
    "new-features-1e300": _new(_column("features", lambda rows: [[1e300] * 12 for _ in rows])),
    "new-features-large": _new(_column("features", lambda rows: [[3e38] * 12 for _ in rows]), False),
    "new-features-nan": _new(_column("features", _with(2, [float("nan")] * 12))),
    "new-features-short": _new(_column("features", _with(2, [1.0]))),
    "new-features-words": _new(_column("features", lambda rows: [["x"] * 12 for _ in rows])),
    "new-features-null": _new(_column("features", _with(2, [None] * 12))),
    "new-no-rows": _new(lambda table: table.slice(0, 0), False),
}
