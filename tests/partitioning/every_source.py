"""A graph in every kind of source, and what a partition of it holds."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import scipy.sparse
from numpy.typing import NDArray

from nfdist.sparse.adjacency import Adjacency

NAMES = ["texts", "numbers in CSV", "row numbers", "texts in CSV", "lists", "sparse", "dense", "made", "cited"]
NODES, EDGES = 210, 900


def ends(generator: np.random.Generator) -> NDArray[np.int64]:
    """Edges with copies, others that run both ways, self-loops and nodes without any."""
    pairs = generator.integers(0, NODES - 20, (2, EDGES))
    pairs[:, :90] = pairs[:, 90:180]
    pairs[:, 200:250] = pairs[::-1, 250:300]
    pairs[0, 300:310] = pairs[1, 300:310]
    return pairs


def write_tables(folder: Path, suffix: str, ids: Any, weighted: bool, files: int, seed: int) -> Path:
    """Columns of every kind with gaps, labels by name, an official split or none."""
    generator, pairs = np.random.default_rng(seed), ends(np.random.default_rng(seed))
    labels = [None if label < 0 else "abcd"[label] for label in generator.integers(-1, 4, NODES)]
    nodes = {
        "id": ids,
        "label": pa.array(labels, pa.string()),
        "number": pa.array(generator.standard_normal(NODES), mask=generator.random(NODES) < 0.2),
        "color": pa.array(generator.choice(["red", "green", ""], NODES)),
        "flag": pa.array(generator.random(NODES) < 0.5, mask=generator.random(NODES) < 0.02),
        "text": [f"{' '.join(generator.choice(list('abcdef'), 6))} {number}" for number in range(NODES)],
        "copy of id": ids,
    }
    if weighted:
        nodes["split"] = pa.array(generator.choice(["train", "valid", "test"], NODES).tolist(), pa.string())
    edges = {"source": ids[pairs[0]], "target": ids[pairs[1]]}
    if weighted:
        edges["weight"] = generator.random(EDGES)
    for name, columns in (("nodes", nodes), ("edges", edges)):
        table = pa.table(columns)
        (folder / name).mkdir(parents=True)
        for part in range(files):
            bounds = len(table) * part // files, len(table) * (part + 1) // files
            write: Any = pq.write_table if suffix == "parquet" else pyarrow.csv.write_csv
            write(table.slice(bounds[0], bounds[1] - bounds[0]), folder / name / f"{part}.{suffix}")
    return folder


def sources_in(folder: Path) -> dict[str, str]:
    generator = np.random.default_rng(4)
    texts = np.array([f"käse {number:x}" for number in generator.permutation(NODES)], dtype=object)
    numbers = generator.permutation(NODES) * 10**9 - 7 * 10**10
    found = {
        "texts": write_tables(folder / "texts", "parquet", texts, True, 3, 1),
        "numbers in CSV": write_tables(folder / "numbers", "csv", numbers, True, 2, 2),
        "row numbers": write_tables(folder / "rows", "parquet", np.arange(NODES), False, 1, 3),
        "texts in CSV": write_tables(folder / "csv", "csv", texts, False, 1, 4),
    }
    lists = pa.array(generator.standard_normal((NODES, 4)).astype(np.float16).tolist(), pa.list_(pa.float16()))
    (folder / "lists").mkdir()
    pq.write_table(pa.table({"features": lists, "label": np.arange(NODES) % 3}), folder / "lists" / "nodes.parquet")
    pairs = ends(generator)
    pq.write_table(pa.table({"src": pairs[0], "dst": pairs[1]}), folder / "lists" / "edges.parquet")
    found["lists"] = folder / "lists"
    usual = {"edge_index": pairs, "label": generator.integers(-1, 4, NODES)}
    rows = scipy.sparse.random_array((NODES, 60), density=0.04, rng=generator, format="csr")
    sparse = {f"feat_{key}": getattr(rows, key) for key in ("indptr", "indices", "data", "shape")}
    dense = {"feat": generator.standard_normal((NODES, 5)), "edge_weight": generator.random(EDGES)}
    masks = {f"{word}_mask": np.arange(NODES) % 4 == place for place, word in enumerate(("train", "val", "test"))}
    for name, arrays in (("sparse", sparse), ("dense", {**dense, **masks})):
        np.savez(folder / f"{name}.npz", **{**usual, **arrays})
        found[name] = folder / f"{name}.npz"
    return {**{name: str(path) for name, path in found.items()}, "made": "amazon2m-like", "cited": "papers100m-like"}


def contents(out: Path) -> dict[str, str]:
    """A digest of every file of a partition."""
    files = sorted(path for path in out.rglob("*") if path.is_file())
    return {str(path.relative_to(out)): hashlib.blake2b(path.read_bytes()).hexdigest() for path in files}


def by_degrees(
    both_ways: Adjacency, num_parts: int, weights: NDArray[np.int64], beside: Path | None
) -> NDArray[np.int64]:
    """In the place of METIS, whose answers differ from run to run: a function of all that it is given."""
    sums = np.bincount(both_ways.targets.numpy(), both_ways.sources.numpy(), both_ways.num_nodes)
    parts: NDArray[np.int64] = (sums.astype(np.int64) + weights.sum(1)) % num_parts
    return parts
