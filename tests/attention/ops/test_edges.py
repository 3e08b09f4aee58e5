"""Edge weights are entries of the dense matrix, in values and gradients, for any shape of graph."""

from dataclasses import replace

import pytest
import torch

from nfdist.attention import ops
from nfdist.attention.attend import attend_to, key_logs_met, pair_log_weights
from nfdist.attention.dense import dense_log_weights
from nfdist.attention.ops.cpu.edges import FAINT_AT_ONCE
from nfdist.attention.summary import summarize
from nfdist.sparse.adjacency import Adjacency
from tests.attention.drawing import Problem, draw
from tests.comparing import assert_same, difference


def features_of(problem: Problem) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    queries, keys = problem.kernel.query_features(problem.queries), problem.kernel.key_features(problem.keys)
    summary = summarize(keys, problem.values[:, 0], problem.kernel, problem.noise)
    attended = attend_to(queries, summary, problem.kernel)
    return queries, key_logs_met(keys, summary, problem.kernel), attended.log_normalizers


def random_graph(nodes: int, edges: int) -> Adjacency:
    ends = torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(2))
    return Adjacency.from_edges(ends[0], ends[1], nodes)


@pytest.mark.parametrize(
    ("scale", "epsilon", "heads", "draws"),
    [(1, 0, 1, 0), (1, 0, 4, 5), (30, 0, 2, 5), (1, 1e-6, 2, 0), (1, 1e-2, 2, 3)],
)
def test_edge_weights_equal_the_dense_ones(scale: float, epsilon: float, heads: int, draws: int) -> None:
    problem = draw(heads=heads, draws=draws, scale=scale, epsilon=epsilon)
    graph = random_graph(61, 300)
    weights = torch.rand(graph.num_nodes, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    features = features_of(problem)
    dense = dense_log_weights(problem.queries, problem.keys, problem.kernel)[:, 0, graph.targets, graph.sources].t()
    assert difference(pair_log_weights(*features, graph.targets, graph.sources), dense) < 1e-10
    total = ops.edge_log_likelihood(*features, graph, weights)
    assert_same(total, (weights[graph.targets, None] * dense).sum(), [problem.queries, problem.keys], 1e-10)


def test_a_graph_of_many_chunks_with_a_hub_and_isolated_nodes() -> None:
    problem = draw(nodes=200)
    generator = torch.Generator().manual_seed(4)
    sources = torch.cat([torch.arange(200), torch.randint(200, (500,), generator=generator)])
    targets = torch.cat([torch.full((200,), 17), torch.randint(100, (500,), generator=generator)])
    graph = Adjacency.from_edges(sources, targets, 200)
    weights = torch.ones(graph.num_nodes, dtype=torch.float64)
    features = features_of(problem)
    dense = dense_log_weights(problem.queries, problem.keys, problem.kernel)[:, 0, graph.targets, graph.sources].t()
    total = ops.edge_log_likelihood(*features, graph, weights)
    assert_same(total, dense.sum(), [problem.queries, problem.keys], 1e-10)
    assert difference(pair_log_weights(*features, graph.targets, graph.sources, chunk_rows=64), dense) < 1e-10


def test_a_graph_without_edges_has_likelihood_zero() -> None:
    problem = draw(nodes=4)
    nowhere = torch.zeros(0, dtype=torch.int32)
    graph = Adjacency(torch.zeros(5, dtype=torch.int32), nowhere)
    total = ops.edge_log_likelihood(*features_of(problem), graph, torch.zeros(4, dtype=torch.float64))
    assert total == 0
    assert all((gradient == 0).all() for gradient in torch.autograd.grad(total, [problem.queries, problem.keys]))
    assert pair_log_weights(*features_of(problem), nowhere, nowhere).shape == (0, 1)


@pytest.mark.parametrize("threshold", [0.3, 100.0])
def test_edges_whose_product_would_underflow_are_worked_out_alone(
    threshold: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "nfdist.attention.ops.cpu.edges.smallest_factor", lambda dtype: threshold
    )  # some of them, or all
    problem = draw(nodes=200, heads=3, draws=2)
    graph = random_graph(200, 20_000)
    assert 3 * graph.num_edges > 2 * FAINT_AT_ONCE
    weights = torch.rand(graph.num_nodes, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    dense = dense_log_weights(problem.queries, problem.keys, problem.kernel)[:, 0, graph.targets, graph.sources].t()
    total = ops.edge_log_likelihood(*features_of(problem), graph, weights)
    assert_same(total, (weights[graph.targets, None] * dense).sum(), [problem.queries, problem.keys], 1e-10)


def test_faint_edges_add_up_in_one_order_with_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nfdist.attention.ops.cpu.edges.smallest_factor", lambda dtype: 100.0)  # all are faint
    generator = torch.Generator().manual_seed(7)
    queries, keys = (torch.randn(300, 2, 16, generator=generator) for _ in range(2))
    graph, normalizers = random_graph(300, 40_000), torch.zeros(300, 2)
    weights = torch.rand(graph.num_nodes, generator=generator)
    found, before = [], torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        for _ in range(8):
            ends = queries.clone().requires_grad_(), keys.clone().requires_grad_()
            total = ops.edge_log_likelihood(*ends, normalizers, graph, weights)
            found.append(torch.cat(torch.autograd.grad(total, ends)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, found[0]) for one in found)


@pytest.mark.parametrize("threshold", [None, 0.3])
@pytest.mark.parametrize("symmetric", [True, False])
def test_a_large_graph_a_few_edges_at_a_time(
    symmetric: bool, threshold: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With some faint edges, or none, from both ends alike; where no gradient is wanted the value is the same."""
    if threshold is not None:
        monkeypatch.setattr("nfdist.attention.ops.cpu.edges.smallest_factor", lambda dtype: threshold)
    problem, graph = draw(heads=3, draws=2), random_graph(61, 300)
    graph = replace(graph.symmetrized(), symmetric=True) if symmetric else graph
    weights = torch.rand(graph.num_nodes, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    features = features_of(problem)
    wanted = ops.edge_log_likelihood(*features, graph, weights)
    monkeypatch.setattr("nfdist.sparse.adjacency.EDGES_AT_ONCE", 40)
    found = ops.edge_log_likelihood(*features, graph, weights)
    assert_same(found, wanted, [problem.queries, problem.keys], 1e-12)
    with torch.no_grad():
        queries, keys, normalizers = (rows.detach() for rows in features)
        assert ops.edge_log_likelihood(queries, keys, normalizers, graph, weights) == found
