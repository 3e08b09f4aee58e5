"""The edge likelihood on a device equals its definition at every scale, in outputs and gradients."""

import pytest
import torch
from torch import Tensor

from nfdist.attention.ops import definition, gpu
from nfdist.sparse.adjacency import Adjacency
from tests.comparing import assert_same


def drawn(
    nodes: int, sources: int, heads: int, scale: float, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, key logs and log normalizers."""
    generator = torch.Generator().manual_seed(nodes)
    shapes = ((nodes, heads, 12), (sources, heads, 12), (nodes, heads))
    queries, keys, normalizers = (
        (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype).requires_grad_()
        for shape in shapes
    )
    return queries, keys, normalizers


def random_graph(nodes: int, sources: int, edges: int) -> Adjacency:
    """With a hub, nodes without edges, and perhaps sources beyond the targets."""
    generator = torch.Generator().manual_seed(2)
    pairs = torch.stack([torch.randint(nodes // 2 + 1, (edges,), generator=generator),
                         torch.randint(sources, (edges,), generator=generator)])  # fmt: skip
    pairs[0, : edges // 4] = nodes // 3
    targets, from_ = pairs.unique(dim=1)
    indptr = torch.cat([torch.zeros(1, dtype=torch.long), targets.bincount(minlength=nodes).cumsum(0)])
    return Adjacency(indptr.int(), from_.int(), None if nodes == sources else sources)


@pytest.mark.parametrize(
    ("dtype", "scale", "tolerance"),
    [(torch.float64, 1, 1e-12), (torch.float64, 30, 1e-12), (torch.float64, 1e3, 1e-12), (torch.float32, 1, 1e-5)],
)
@pytest.mark.parametrize(
    ("nodes", "sources", "heads", "edges"), [(1, 1, 1, 1), (61, 61, 1, 400), (61, 61, 3, 400), (50, 70, 2, 400)]
)
@pytest.mark.parametrize("chunk_rows", [None, 64])
def test_equal_to_the_definition(
    nodes: int,
    sources: int,
    heads: int,
    edges: int,
    scale: float,
    dtype: torch.dtype,
    tolerance: float,
    chunk_rows: int | None,
) -> None:
    inputs, graph = drawn(nodes, sources, heads, scale, dtype), random_graph(nodes, sources, edges)
    weights = torch.rand(graph.num_nodes, generator=torch.Generator().manual_seed(3), dtype=dtype)
    ours = gpu.edge_log_likelihood(*inputs, graph, weights, chunk_rows=chunk_rows)
    assert_same(ours, definition.edge_log_likelihood(*inputs, graph, weights), inputs, tolerance)


def test_a_graph_without_edges_has_likelihood_zero() -> None:
    inputs = drawn(4, 4, 2, 1.0)
    graph = Adjacency(torch.zeros(5, dtype=torch.int32), torch.zeros(0, dtype=torch.int32))
    total = gpu.edge_log_likelihood(*inputs, graph, torch.zeros(4, dtype=torch.float64))
    assert total == 0
    assert all((gradient == 0).all() for gradient in torch.autograd.grad(total, inputs))
