"""Small graphs to divide, as the arrays that a stream reads."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from nfdist import seeds
from nfdist.partitioning.multilevel.row_graph import Integers, RowGraph
from nfdist.sparse.adjacency import Adjacency


def symmetric(sources: Sequence[int] | Integers, targets: Sequence[int] | Integers, num_nodes: int) -> Adjacency:
    starts, ends = (torch.from_numpy(np.asarray(side, np.int64)) for side in (sources, targets))
    return Adjacency.from_edges(starts, ends, num_nodes).symmetrized()


def clustered(num_clusters: int = 16, size: int = 150, edges_a_node: int = 6, strays: float = 0.2) -> Adjacency:
    """Random edges, most of them inside clusters, whose nodes have random numbers."""
    draws = seeds.numpy_generator(0, "clustered")
    num_nodes = num_clusters * size
    sources = np.repeat(np.arange(num_nodes), edges_a_node)
    inside = draws.random(len(sources)) >= strays
    within = sources // size * size + draws.integers(size, size=len(sources))
    targets = np.where(inside, within, draws.integers(num_nodes, size=len(sources)))
    numbers = draws.permutation(num_nodes)
    return symmetric(numbers[sources], numbers[targets], num_nodes)


def tree(num_nodes: int = 3000) -> Adjacency:
    """Every node below one of the eighth before it: wide families and long chains of them."""
    draws = seeds.numpy_generator(0, "tree")
    children = np.arange(1, num_nodes)
    parents = (children * (1 - draws.random(len(children)) / 8) - 1).clip(0).astype(np.int64)
    numbers = draws.permutation(num_nodes)
    return symmetric(numbers[children], numbers[parents], num_nodes)


def row_graph(graph: Adjacency, *columns: Integers) -> RowGraph:
    """Nodes and degrees to balance, and further columns."""
    ones = np.ones(graph.num_nodes, np.int64)
    return RowGraph(graph.indptr.numpy(), graph.sources.numpy(), (ones, graph.in_degrees.numpy(), *columns))


def cut(graph: Adjacency, parts: NDArray[np.int64]) -> int:
    return int((parts[graph.sources] != parts[graph.targets]).sum()) // 2
