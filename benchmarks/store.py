"""The mapped store: random rows against memory, induced subgraphs against DGL, and the time to open a partition.

    python benchmarks/store.py [--partition DIR] [--scale 1.0] [--nodes 100000]

Without --partition it partitions amazon2m-like first (minutes at full scale). Medians of interleaved runs, warm.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from nfdist import seeds
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.sparse.dgl_door import dgl
from nfdist.store.store import Store


def medians(sides: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Milliseconds of each side, taken in turns after one run for warmth."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(repeats + 1):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            if repeat:
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def compare_rows(store: Store, memory: torch.Tensor, node_ids: torch.Tensor) -> dict[str, float]:
    """Rows of the store against the same rows of one array in memory."""
    buffer, other = torch.empty(2, len(node_ids), store.num_features)
    times = medians(
        {
            "store": lambda: store.take(node_ids, out=buffer),
            "indexing": lambda: memory[node_ids],
            "index_select into a buffer": lambda: torch.index_select(memory, 0, node_ids, out=other),
        },
        20,
    )
    assert torch.equal(buffer, other)
    return times


def compare(directory: Path, num_nodes: int) -> None:
    opening = medians({"open": lambda: Store.open(directory)}, 3)["open"]
    store = Store.open(directory)
    print(f"{store.num_nodes:,} nodes, {store.num_edges:,} edges: opened in {opening:.0f} ms   wanted < 1000")
    node_ids = torch.randperm(store.num_nodes, generator=seeds.generator(0, "nodes"))[:num_nodes]
    memory = torch.cat([rows for _, rows in store.scan(1 << 18)])
    rows = {
        order: compare_rows(store, memory, ids)
        for order, ids in (("ascending, as a batch is read", node_ids.sort().values), ("in random order", node_ids))
    }
    parts = [store.in_edges(number) for number in range(len(store.parts))]
    sources = torch.cat([part_sources for _, part_sources in parts])
    degrees = torch.cat([indptr.diff() for indptr, _ in parts])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int32), degrees.cumsum(0).int()])
    graph = dgl().graph(("csc", (indptr, sources, sources.new_empty(0))), num_nodes=store.num_nodes)
    graph.create_formats_()
    targets = torch.arange(store.num_nodes, dtype=torch.int32).repeat_interleave(degrees)

    def mask_all_edges() -> torch.Tensor:
        inside = torch.zeros(store.num_nodes, dtype=torch.bool)
        inside[node_ids] = True
        return (inside[sources] & inside[targets]).nonzero()

    narrow = node_ids.int()
    sides = {
        "store": lambda: store.induced(node_ids),
        "dgl": lambda: dgl().node_subgraph(graph, narrow, store_ids=False),
        "mask": mask_all_edges,
    }
    assert sides["store"]().num_edges == sides["dgl"]().num_edges() == len(mask_all_edges())
    induced = medians(sides, 7)
    for order, times in rows.items():
        print(f"{num_nodes:,} random rows into a buffer, {order}: {times['store']:.1f} ms")
        for name in ("indexing", "index_select into a buffer"):
            speed = times[name] / times["store"]
            print(
                f"  {name} of the same array in memory: {times[name]:.1f} ms, {speed:.2f} of its speed, wanted >= 0.9"
            )
    print(
        f"induced subgraph of {num_nodes:,} random nodes: {induced['store']:.0f} ms, DGL {induced['dgl']:.0f} ms, "
        f"{induced['store'] / induced['dgl']:.2f} of its time   wanted <= 1"
    )
    print(
        f"  against masking all edges, {induced['mask']:.0f} ms: {induced['mask'] / induced['store']:.1f} times faster"
        "   wanted >= 5"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partition", type=Path)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--nodes", type=int, default=100_000)
    options = parser.parse_args()
    if options.partition:
        compare(options.partition, options.nodes)
        return
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "partition"
        partition(Recipe.build("amazon2m-like", {"scale": options.scale, "parts": 8, "out": str(out)}))
        compare(out, options.nodes)


if __name__ == "__main__":
    main()
