"""--method stream against METIS, on the same graph in the same run: edges cut, time and memory.

    python benchmarks/stream.py [--source amazon2m-like] [--scale 0.1] [--parts 8] [--memory 2GiB 4GiB 8GiB]

The graph is made once, and its in-edges are kept in files. Each side then runs in a process of its own: METIS reads
them into memory, a stream maps them. Time is that of dividing alone, as the clock shows it and as the processor counts
it, which differ on a busy machine; memory is the peak of private bytes while dividing, the process itself included.
With --source ncbi-taxonomy, or any other name or path, the graph is that one ($NFDIST_DATA).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from nfdist.memory import MemoryWatch, parse_bytes
from nfdist.partitioning.ordering import order_edges
from nfdist.partitioning.sources import SourceOptions, load
from nfdist.partitioning.streaming import stream_assign
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.metis import metis
from nfdist.store.source_graph import TRAIN

_FILES = ("indptr", "sources", "trained")
_ROWS_AT_ONCE = 1 << 18


def make(source: str, scale: float, folder: Path) -> None:
    """Write the in-edges of a source, symmetric and each once, and which nodes are for training."""
    options = SourceOptions(split="random:0.5/0.25/0.25")
    graph = load(source, replace(options, scale=scale) if source == "amazon2m-like" else options)
    edges = order_edges(graph, directed=False)
    for name, array in zip(_FILES, (edges.indptr.numpy(), edges.sources.numpy(), graph.split == TRAIN), strict=True):
        np.save(folder / f"{name}.npy", array)
    print(f"{source}: {edges.num_nodes:,} nodes, {edges.num_edges:,} stored edges")


def divide(method: str, folder: Path, parts: int, memory: str, seed: int) -> dict[str, float]:
    """What one side needs, and how good its parts are."""
    indptr, sources, trained = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in _FILES)
    if method == "metis":
        indptr, sources, trained = (np.array(mapped) for mapped in (indptr, sources, trained))
    columns = [np.ones(len(trained), np.int64), np.diff(indptr).astype(np.int64), trained.astype(np.int64)]
    clock, processor = time.perf_counter(), time.process_time()
    with MemoryWatch() as watch:
        if method == "stream":
            found = stream_assign(indptr, sources, trained, parts, seed, parse_bytes("--memory", memory))
        else:
            graph = Adjacency(torch.from_numpy(indptr), torch.from_numpy(sources))
            found = metis(graph, parts, np.stack(columns, 1))
    seconds, cpu_seconds = time.perf_counter() - clock, time.process_time() - processor
    loads = [np.bincount(found, column, parts).max() / (column.sum() / parts) for column in columns]
    return {
        "cut": cut(indptr, sources, found),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "gibibytes": watch.peak_private_bytes / 2**30,
        **dict(zip(("nodes", "edges", "training"), loads, strict=True)),
    }


def cut(indptr: NDArray[np.int32], sources: NDArray[np.int32], parts: NDArray[np.int64]) -> int:
    """The undirected edges between parts."""
    between = 0
    for start in range(0, len(parts), _ROWS_AT_ONCE):
        ends = np.asarray(indptr[start : start + _ROWS_AT_ONCE + 1])
        targets = np.repeat(parts[start : start + _ROWS_AT_ONCE], np.diff(ends))
        between += int((targets != parts[sources[ends[0] : ends[-1]]]).sum())
    return between // 2


def measure(method: str, folder: Path, options: argparse.Namespace, memory: str) -> dict[str, float]:
    """A side's figures, from a process of its own."""
    command = [sys.executable, __file__, "--side", method, "--folder", str(folder), "--parts", str(options.parts)]
    command += ["--memory", memory, "--seed", str(options.seed)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="amazon2m-like")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--memory", nargs="+", default=["4GiB"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--side", choices=("metis", "stream"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(divide(options.side, options.folder, options.parts, options.memory[0], options.seed)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(options.source, options.scale, folder)
        names = ("cut", "seconds", "cpu_seconds", "gibibytes", "nodes", "edges", "training")
        print(f"{options.parts} parts; the heaviest part's nodes, edges and training nodes are in means")
        print(f"{'':15}" + "".join(f"{name:>13}" for name in names))
        theirs = measure("metis", folder, options, "4GiB")
        print(f"{'METIS':15}" + f"{theirs['cut']:13,}" + "".join(f"{theirs[name]:13.2f}" for name in names[1:]))
        for memory in options.memory:
            ours = measure("stream", folder, options, memory)
            print(f"{'stream ' + memory:15}{ours['cut']:13,}" + "".join(f"{ours[name]:13.2f}" for name in names[1:]))
            ratios = [
                ours[name] / max(theirs[name], 1) if name == "cut" else ours[name] / theirs[name] for name in names
            ]
            print(f"{'  / METIS':15}" + "".join(f"{ratio:13.3f}" for ratio in ratios))


if __name__ == "__main__":
    main()
