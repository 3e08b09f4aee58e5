"""Relations are products with the dense matrices of the definition."""

import pytest
import torch

from nfdist import seeds
from nfdist.graph.relation import build_relations, relate
from nfdist.sparse.adjacency import Adjacency
from tests.comparing import assert_same
from tests.model.reference import adjacency_matrix, weighted


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_relate_equals_dense_products(order: int, normalize: bool) -> None:
    generator = seeds.generator(order, "relate")
    ends = torch.randint(30, (2, 50), generator=generator)  # sparse enough for isolated nodes
    graph = Adjacency.from_edges(ends[0], ends[1], 30)
    rows, weights, biases = (
        torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((30, 6), (order, 6, 6), (order, 6))
    )
    relations = build_relations(graph, order, normalize, torch.float64)
    reach = adjacency_matrix(graph, torch.float64)
    dense = rows.new_zeros(30, 6)
    for hop in range(order):
        relation = weighted(torch.linalg.matrix_power(reach, hop + 1), normalize)
        dense = dense + relation @ (rows @ weights[hop].t() + biases[hop])
    assert_same(relate(rows, weights, biases, relations), dense, [rows, weights, biases], 1e-12)
