"""The weighted sum over in-edges: nfdist's product against DGL's two, on graphs of several sizes.

    python benchmarks/sparse.py

nfdist uses torch's embedding_bag, which takes the edge weights along; DGL's u_mul_e_sum does the same, its copy_u_sum
is faster but has no weights. Times are medians of interleaved runs, in milliseconds.
"""

import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial

import torch

from nfdist import seeds
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.dgl_door import dgl
from nfdist.sparse.spmm import spmm

SIZES = ((2_708, 13_000), (100_000, 210_000), (100_000, 5_000_000), (500_000, 10_000_000))
CHANNELS = 64


def main() -> None:
    warnings.simplefilter("ignore")
    print(f"{'nodes':>10}{'edges':>12}{'nfdist':>10}{'u_mul_e':>10}{'copy_u':>10}   ms, {CHANNELS} channels")
    for num_nodes, num_edges in SIZES:
        ends = torch.randint(num_nodes, (2, num_edges), generator=seeds.generator(0, "edges"))
        graph = Adjacency.from_edges(ends[0], ends[1], num_nodes)
        rows, weights = torch.randn(num_nodes, CHANNELS), torch.rand(graph.num_edges)
        theirs = dgl().graph(("csc", (graph.indptr, graph.sources, graph.sources.new_empty(0))), num_nodes=num_nodes)
        sides: dict[str, Callable[[], object]] = {
            "nfdist": partial(spmm, graph, rows, weights),
            "u_mul_e": partial(dgl().ops.u_mul_e_sum, theirs, rows, weights),
            "copy_u": partial(dgl().ops.copy_u_sum, theirs, rows),
        }
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(6):
            for name, product in sides.items():
                start = time.perf_counter()
                product()
                times[name].append(1e3 * (time.perf_counter() - start))
        medians = "".join(f"{statistics.median(values[1:]):10.2f}" for values in times.values())
        print(f"{num_nodes:>10,}{graph.num_edges:>12,}{medians}")


if __name__ == "__main__":
    main()
