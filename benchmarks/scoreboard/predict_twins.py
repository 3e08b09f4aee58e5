"""`nfdist predict` of new nodes whose labels are known: twins of labeled test nodes, with their features and neighbors.

    python benchmarks/scoreboard/predict_twins.py PARTITION RUN NODES OUT_FOLDER

A twin has an id that the graph does not have, so that its answer comes from its row alone. What `nfdist predict --json`
prints is printed again, with `test`, the share of twins whose answer is the label of their original.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from nfdist import seeds
from nfdist.store.schema import NEIGHBORS
from nfdist.store.store import Store


def chosen_nodes(store: Store, count: int) -> Tensor:
    """Some test nodes that have a label, ascending."""
    nodes = store.nodes_in_split("test")
    nodes = nodes[store.labels(nodes) >= 0]
    order = seeds.numpy_generator(0, "scoreboard", "twins").permutation(len(nodes))[:count]
    return nodes[torch.from_numpy(np.sort(order))]


def in_neighbors(store: Store, nodes: Tensor) -> "pa.Array":
    """The original ids of those that send to each of some ascending nodes."""
    counts, found = [], [torch.empty(0, dtype=torch.int64)]
    for number, part in enumerate(store.parts):
        rows = nodes[(nodes >= part.start) & (nodes < part.stop)] - part.start
        starts, degrees, sources = store.in_edges_of(number, rows.numpy())
        counts += degrees.tolist()
        ranges = zip(starts.tolist(), degrees.tolist(), strict=True)
        found += [torch.from_numpy(np.array(sources[start : start + degree])).long() for start, degree in ranges]
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(store.original_ids(torch.cat(found))))


def twins(store: Store, nodes: Tensor) -> "pa.Table":
    schema, features = store.manifest.schema, store.take(nodes)
    rows = (features.to_dense() if features.layout == torch.sparse_csr else features).float().numpy()
    columns = {
        schema.id_column: pa.array(store.num_nodes + np.arange(len(nodes))),
        schema.columns[0].name: pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1]),
        NEIGHBORS: in_neighbors(store, nodes),
    }
    return pa.table(columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("partition", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("nodes", type=int)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    store = Store.open(options.partition)
    nodes = chosen_nodes(store, options.nodes)
    options.out.mkdir(parents=True, exist_ok=True)
    rows, answers = options.out / "twins.parquet", options.out / "answers.parquet"
    pq.write_table(twins(store, nodes), rows)
    words = ["predict", str(options.run), str(rows), "--out", str(answers), "--json"]
    done = subprocess.run([sys.executable, "-m", "nfdist", *words], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    told = pq.read_table(answers)["label"].to_numpy()
    right = float((told == store.labels(nodes).numpy()).mean())
    print(json.dumps({**json.loads(done.stdout.splitlines()[-1]), "test": right}))


if __name__ == "__main__":
    main()
