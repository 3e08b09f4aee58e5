"""Small graphs in every form that nfdist reads, written without nfdist; all of them drawn from fixed seeds."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import scipy.sparse

NODES, EDGES, FEATURES, CLASSES = 240, 700, 12, 4
WIDE_NODES, WIDE_FEATURES = 1300, 1024  # a part's features take more than two blocks of 1 MiB
SPLITS = ("train", "valid", "test")
DGL_SCRIPT = """
import contextlib, io, sys, numpy, torch
from nfdist.sparse.dgl_door import dgl
arrays = numpy.load(sys.argv[1])
sources, targets = (torch.from_numpy(ends) for ends in arrays["edge_index"])
graph = dgl().graph((sources, targets), num_nodes=len(arrays["label"]))
graph.ndata["feat"] = torch.from_numpy(arrays["feat"])
graph.ndata["label"] = torch.from_numpy(arrays["label"])
dgl().save_graphs(sys.argv[2] + "/toy.bin", [graph])
with contextlib.redirect_stdout(io.StringIO()):
    dgl().distributed.partition_graph(graph, "toy", 2, sys.argv[2] + "/parts", part_method="random")
"""


def arrays(seed: int = 0, nodes: int = NODES, features: int = FEATURES) -> dict[str, Any]:
    """A graph whose labels can be learned, with splits."""
    draw = np.random.default_rng(seed)
    label = draw.integers(CLASSES, size=nodes)
    feat = draw.normal(size=(nodes, features)).astype(np.float32)
    feat[:, :CLASSES] += 2 * np.eye(CLASSES, dtype=np.float32)[label]
    places = draw.permutation(nodes)
    cuts = [nodes // 2, 3 * nodes // 4]
    members = {f"{name}_idx": np.sort(part) for name, part in zip(SPLITS, np.split(places, cuts), strict=True)}
    return {"edge_index": draw.integers(nodes, size=(2, EDGES)), "feat": feat, "label": label, **members}


def write_npz(path: Path) -> Path:
    np.savez(path, **arrays())
    return path


def write_wide(path: Path) -> Path:
    np.savez(path, **arrays(3, WIDE_NODES, WIDE_FEATURES))
    return path


def write_sparse(path: Path) -> Path:
    """Sparse features, and several yes-or-no questions for every node."""
    own = arrays(1, features=60)
    feat = scipy.sparse.csr_matrix(np.where(own.pop("feat") > 1.7, 1.0, 0.0).astype(np.float32))
    parts = {"indptr": feat.indptr, "indices": feat.indices, "data": feat.data, "shape": np.array(feat.shape)}
    own["label"] = np.stack([own["label"] == number for number in range(3)], 1).astype(np.int64)
    np.savez(path, **own, **{f"feat_{name}": part for name, part in parts.items()})
    return path


def tables(seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """The same graph as tables of nodes and edges; ids are words."""
    own = arrays(seed)
    names = np.array([f"node-{number * 7 % 1000:03}" for number in range(NODES)])
    split = np.empty(NODES, dtype=object)
    for name in SPLITS:
        split[own[f"{name}_idx"]] = name
    nodes = {"id": names, "label": own["label"], "split": split, "features": own["feat"].tolist()}
    return pa.table(nodes), pa.table({"source": names[own["edge_index"][0]], "target": names[own["edge_index"][1]]})


def write_tables(folder: Path) -> Path:
    folder.mkdir()
    for name, one in zip(("nodes", "edges"), tables(), strict=True):
        pq.write_table(one, folder / f"{name}.parquet")
    return folder


def write_csv(folder: Path) -> Path:
    folder.mkdir()
    nodes, edges = tables()
    rows = np.array(nodes.column("features").to_pylist(), dtype=np.float32).round(3)
    nodes = nodes.drop_columns("features")
    for number in range(4):
        nodes = nodes.append_column(f"x{number}", pa.array(rows[:, number].astype(np.float64).round(3)))
    pyarrow.csv.write_csv(nodes, folder / "nodes.csv")
    pyarrow.csv.write_csv(edges, folder / "edges.csv")
    return folder


def write_dgl(folder: Path, code: Path) -> Path:
    """toy.bin, one graph, and parts/toy.json, a partition of it."""
    folder.mkdir()
    write_npz(folder / "toy.npz")
    words = [sys.executable, "-W", "ignore", "-c", DGL_SCRIPT, str(folder / "toy.npz"), str(folder)]
    subprocess.run(words, check=True, env={"PYTHONPATH": str(code), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"})
    (folder / "toy.npz").unlink()
    return folder


def write_recipe(folder: Path) -> Path:
    """A recipe with most of the keys that there are, beside its source and an assignment."""
    folder.mkdir()
    write_npz(folder / "graph.npz")
    (folder / "assignment.txt").write_text("".join(f"{number % 3}\n" for number in range(NODES)))
    recipe = {
        "source": str(folder / "graph.npz"),
        "parts": 3,
        "method": "file",
        "assignment": str(folder / "assignment.txt"),
        "directed": False,
        "split": "random:0.5/0.25/0.25",
        "seed": 3,
        "knn": 4,
        "normalize_features": "row",
    }
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in recipe.items())
    (folder / "recipe.toml").write_text(text)
    return folder


def write_new_nodes(path: Path, ids: str = "words") -> Path:
    """Nodes that training never saw, one that it did, and their neighbors."""
    pq.write_table(new_nodes(ids), path)
    return path


def new_nodes(ids: str = "words", features: int = FEATURES) -> pa.Table:
    feat = np.random.default_rng(9).normal(size=(6, features)).astype(np.float32)
    known = [f"node-{number * 7 % 1000:03}" for number in range(NODES)] if ids == "words" else list(range(NODES))
    own = [known[5], "new-1", "new-2", "new-3", "new-4", "new-5"] if ids == "words" else [5, *range(2000, 2005)]
    neighbors: list[list[Any] | None] = [[known[number], known[3 * number + 1]] for number in range(4)]
    return pa.table({"id": own, "features": feat.tolist(), "neighbors": [*neighbors, [], None]})
