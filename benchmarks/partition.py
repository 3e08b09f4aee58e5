"""nfdist partition against dgl.distributed.partition_graph, both with METIS, on a graph of Amazon2M's shape.

    python benchmarks/partition.py [--scale 0.25] [--parts 4] [--full]

Each side runs in a process of its own that first makes the same graph. The time is what follows: for nfdist ordering
the edges, dividing and writing; for DGL partition_graph alone, on a graph that is symmetric already, with training
nodes and edges balanced. Memory is the largest resident set of the whole process. With --full, nfdist then partitions
the full scale.
"""

import argparse
import contextlib
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from nfdist.partitioning.ordering import order_edges
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.sources import SourceOptions, load
from nfdist.sparse.dgl_door import dgl
from nfdist.store.source_graph import TRAIN


def run_nfdist(scale: float, parts: int, out: Path) -> dict[str, float]:
    outcome = partition(Recipe.build("amazon2m-like", {"scale": scale, "parts": parts, "out": str(out / "nfdist")}))
    seconds = sum(value for name, value in outcome.seconds.items() if name != "read")
    return {"seconds": seconds, "edge_cut": outcome.manifest.edge_cut, "edges": outcome.manifest.num_edges}


def run_dgl(scale: float, parts: int, out: Path) -> dict[str, float]:
    source = load("amazon2m-like", SourceOptions(scale=scale))
    edges = order_edges(source, directed=False)
    graph = dgl().graph((edges.sources.long(), edges.targets.long()), num_nodes=edges.num_nodes)
    graph.ndata["feat"] = torch.from_numpy(source.features)
    graph.ndata["label"] = torch.from_numpy(source.labels)
    train = torch.from_numpy(source.split == TRAIN)
    graph.ndata["train_mask"] = train
    dgl().distributed  # noqa: B018  (imported before the clock starts)
    start = time.perf_counter()
    originals, _ = dgl().distributed.partition_graph(
        graph, "graph", parts, str(out / "dgl"), balance_ntypes=train, balance_edges=True, return_mapping=True
    )
    seconds = time.perf_counter() - start
    ranges = json.loads((out / "dgl" / "graph.json").read_text())["node_map"]["_N"]
    part_of = np.empty(graph.num_nodes(), dtype=np.int64)
    for part, (first, stop) in enumerate(ranges):
        part_of[originals[first:stop].numpy()] = part
    cut = int((part_of[edges.sources.numpy()] != part_of[edges.targets.numpy()]).sum())
    return {"seconds": seconds, "edge_cut": cut, "edges": edges.num_edges}


def measure(side: str, scale: float, parts: int) -> dict[str, float]:
    """A side's figures, from a process of its own."""
    command = [sys.executable, __file__, "--side", side, "--scale", str(scale), "--parts", str(parts)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.25)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--full", action="store_true", help="also partition the full scale into 8 parts")
    parser.add_argument("--side", choices=("nfdist", "dgl"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        run = run_nfdist if options.side == "nfdist" else run_dgl
        with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(io.StringIO()):
            figures = run(options.scale, options.parts, Path(out))
        figures["gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        print(json.dumps(figures))
        return
    ours, theirs = (measure(side, options.scale, options.parts) for side in ("nfdist", "dgl"))
    print(f"amazon2m-like at {options.scale}, {ours['edges']:,} stored edges, {options.parts} parts")
    print(f"{'':12}{'nfdist':>14}{'DGL':>14}{'ratio':>8}   wanted")
    for name, wanted in (("seconds", "<= 0.7"), ("gigabytes", "<= 0.7"), ("edge_cut", "<= 1.05")):
        print(f"{name:12}{ours[name]:14,.1f}{theirs[name]:14,.1f}{ours[name] / theirs[name]:8.2f}   {wanted}")
    if options.full:
        full = measure("nfdist", 1.0, 8)
        print(f"full scale, 8 parts: {full['seconds']:.0f} s, {full['gigabytes'] / 1.073741824:.1f} GiB   wanted <= 12")


if __name__ == "__main__":
    main()
