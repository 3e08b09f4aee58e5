"""A run on tables whose names would be markup, trained and evaluated once for all tests of the report."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nfdist import api
from nfdist.store.store import Store

CLASSES = ("<script>alert(1)</script>", "films & music", 'the "others"')
NODES, EDGES = 150, 500
MODEL: dict[str, dict[str, Any]] = {
    "model": {"layers": 2, "channels": 8, "heads": 2, "random_features": 10},
    "relation": {"order": 1},
    "train": {"epochs": 3, "batch_nodes": 60, "learning_rate": 0.01, "seeds": [0, 1], "edge_loss": 0.1},
    "observe": {"port": 0},
}


def build_tables(folder: Path) -> Path:
    """Nodes of three kinds, mostly joined within a kind, some without a label."""
    stream = np.random.default_rng(0)
    kinds = stream.integers(0, len(CLASSES), NODES)
    ids = [f"<i>node</i> {number}" for number in range(NODES)]
    features = stream.standard_normal((3, 6))[kinds] + stream.standard_normal((NODES, 6))
    labels = [CLASSES[kind] if number % 10 else None for number, kind in enumerate(kinds)]
    ends = stream.integers(0, NODES, (2, EDGES))
    ends = ends[:, (kinds[ends[0]] == kinds[ends[1]]) | (stream.random(EDGES) < 0.2)]
    folder.mkdir()
    pq.write_table(pa.table({"id": ids, "features": features.tolist(), "label": labels}), folder / "nodes.parquet")
    names = np.array(ids, dtype=object)
    pq.write_table(pa.table({"source": names[ends[0]], "target": names[ends[1]]}), folder / "edges.parquet")
    return folder


def build_graph(folder: Path) -> Store:
    tables = build_tables(folder / "tables")
    return api.partition(tables, folder / "graph", parts=2, method="random", split="random:0.5/0.25/0.25")


def train_run(folder: Path, graph: Path, evaluated: bool = True, **more: Any) -> Path:
    """A run in `folder`, with sections on top of MODEL."""
    sections = {name: {**MODEL.get(name, {}), **more.get(name, {})} for name in {*MODEL, *more}}
    given: dict[str, Any] = {**sections, "data": {"partition": str(graph)}, "run": {"dir": str(folder)}}
    run = api.train(None, **given)
    if evaluated:
        api.evaluate(run)
    return folder
