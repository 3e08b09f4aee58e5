"""The edge log likelihood equals the definition for any graph, and repeats itself to the bit."""

import pytest
import torch

from nfdist.sparse.adjacency import Adjacency
from tests.attention.ops.triton_kernels.running import DEVICE, KERNELS, TOLERANCES, assert_defined, random

pytestmark = pytest.mark.accelerator


def random_graph(nodes: int, edges: int, copies: int = 0) -> Adjacency:
    """A graph of a hub, node 0, nodes without edges, and sources beyond the targets."""
    generator = torch.Generator().manual_seed(2)
    ends = torch.randint(nodes, (2, edges), generator=generator)
    ends[1, : edges // 3], ends[1, edges // 3 :] = 0, ends[1, edges // 3 :] // 2
    graph = Adjacency.from_edges(ends[0], ends[1], nodes + copies)
    return Adjacency(graph.indptr[: nodes + 1], graph.sources, nodes + copies).to(DEVICE)


@pytest.mark.parametrize(
    ("nodes", "heads", "features", "edges", "copies", "dtype"),
    [
        (1, 1, 5, 1, 0, torch.float64),
        (17, 2, 30, 60, 3, torch.float64),
        (12, 1, 70, 50, 0, torch.float32),
        (12, 1, 5, 50, 0, torch.bfloat16),
    ],
)
@pytest.mark.parametrize("scale", [1, 30])
def test_of_any_graph(
    nodes: int, heads: int, features: int, edges: int, copies: int, dtype: torch.dtype, scale: float
) -> None:
    graph = random_graph(nodes, edges, copies)
    queries, keys, log_normalizers = (
        random(*shape, seed=index, dtype=dtype, scale=scale)
        for index, shape in enumerate([(nodes, heads, features), (nodes + copies, heads, features), (nodes, heads)])
    )
    weights = random(graph.num_nodes, seed=5, dtype=torch.promote_types(dtype, torch.float32)).detach().abs()
    tolerance = max(TOLERANCES[dtype], 1e-3 if dtype == torch.float32 and scale > 1 else 0)
    assert_defined("edge_log_likelihood", [queries, keys, log_normalizers], graph, weights, tolerance=tolerance)


def test_of_no_edges_is_zero() -> None:
    queries, keys = (random(4, 2, 5, seed=seed, dtype=torch.float32) for seed in (1, 2))
    log_normalizers = random(4, 2, seed=3, dtype=torch.float32)
    graph = Adjacency(torch.zeros(5, dtype=torch.int32), torch.zeros(0, dtype=torch.int32)).to(DEVICE)
    total = KERNELS.edge_log_likelihood(queries, keys, log_normalizers, graph, queries.new_zeros(4))
    assert total == 0
    assert all((grad == 0).all() for grad in torch.autograd.grad(total, [queries, keys, log_normalizers]))


def test_a_repetition_gives_the_same_bits() -> None:
    graph, found = random_graph(17, 60), []
    queries, keys = (random(17, 1, 5, seed=seed, dtype=torch.float32) for seed in (1, 2))
    weights = torch.ones(graph.num_nodes, device=DEVICE)
    for _ in range(2):
        total = KERNELS.edge_log_likelihood(queries, keys, queries.new_zeros(17, 1), graph, weights)
        found.append(
            torch.cat([total.detach()[None], *(g.flatten() for g in torch.autograd.grad(total, [queries, keys]))])
        )
    assert torch.equal(*found)
