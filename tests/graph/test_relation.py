"""Relations are products with the dense matrices of the definition."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nfdist import seeds
from nfdist.errors import ConfigError
from nfdist.graph.relation import Relation, build_relations, build_world_relations, relate
from nfdist.model.protocol import Draw
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.distributed import DistributedStore
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.world import World
from tests.comparing import assert_same, difference
from tests.evaluation.building import Options, weight_matrix, write_weighted_graph
from tests.model.building import OPTIONS
from tests.model.reference import adjacency_matrix, weighted
from tests.worlds import run_world


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


def dense_weights(matrix: Tensor, normalize: bool) -> Tensor:
    return matrix / (matrix.sum(1, keepdim=True) * matrix.sum(0, keepdim=True)).sqrt() if normalize else matrix


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("directed", [True, False])
def test_weights_are_those_of_the_definition_in_order_1_alone(normalize: bool, directed: bool, tmp_path: Path) -> None:
    store = Store.open(write_weighted_graph(tmp_path / "p", directed, 3))
    hops, generator = Hops.open(store, 2, weighted=True), seeds.generator(3, "weights")
    for nodes in (torch.arange(60), torch.randperm(60, generator=generator)[:35]):
        rows, maps, offsets = (
            torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
            for shape in ((len(nodes), 6), (2, 6, 6), (2, 6))
        )
        relations = [Relation.build(hops.induced(hop, nodes), normalize, torch.float64) for hop in (1, 2)]
        matrix = weight_matrix(store, directed)
        # An edge that weighs nothing is an edge all the same.
        reach = adjacency_matrix(store.induced(torch.arange(60)), torch.float64)
        first = dense_weights(matrix[nodes][:, nodes], normalize)
        second = weighted((reach @ reach)[nodes][:, nodes], normalize)
        dense = first @ (rows @ maps[0].t() + offsets[0]) + second @ (rows @ maps[1].t() + offsets[1])
        assert_same(relate(rows, maps, offsets, relations), dense, [rows, maps, offsets], 1e-10)
        assert_same(relations[0].propagate(rows), first @ rows, [rows], 1e-10)


def of_all_ranks(world: World, path: str) -> list[list[list[float]]]:
    """Â_1 of this rank's rows of the batches together, as it holds some of the parts or all."""
    found = []
    whole = Store.open(path)
    for store in (whole, DistributedStore(Store.open(path, [world.rank]), world)):
        batches = list(torch.arange(50).split(50 // world.size + 1))
        everyone, sizes = torch.cat(batches), [len(batch) for batch in batches]
        pattern = Hops.open(store, 1, weighted=True).induced(1, batches[world.rank], everyone)
        (relation,), halo = build_world_relations(world, sizes, [pattern], True, torch.float64)
        each = torch.eye(50, dtype=torch.float64)[sum(sizes[: world.rank]) :][: sizes[world.rank]]
        found.append(relation.propagate(halo.extend(each, world)).tolist())
    return found


def test_weights_meet_across_ranks(tmp_path: Path) -> None:
    path = write_weighted_graph(tmp_path / "p", directed=True, num_parts=3)
    wanted = dense_weights(weight_matrix(Store.open(path), directed=True)[:50, :50], normalize=True)
    ranks = run_world(3, of_all_ranks, str(path))
    for store in range(2):
        rows = torch.cat([torch.tensor(rank[store], dtype=torch.float64) for rank in ranks])
        assert difference(rows, wanted) < 1e-10


def test_a_weighted_graph_needs_its_loops(tmp_path: Path) -> None:
    store = Store.open(write_weighted_graph(tmp_path / "p", directed=True, num_parts=1))
    with pytest.raises(ConfigError, match="lacks some self-loops"):
        build_relations(store.induced(torch.arange(60), weights=True), 1)


def test_the_edge_loss_knows_no_weights(tmp_path: Path) -> None:
    store = Store.open(write_weighted_graph(tmp_path / "p", directed=True, num_parts=1))
    model, attention, relation = OPTIONS["defaults"]
    net = Options(replace(model, layers=1), attention, replace(relation, order=1)).build(5)
    everyone = torch.arange(60)
    plain, heeded = (
        net(
            store.take(everyone).double(),
            [Relation.build(Hops.open(store, 1, weighted=weighted).induced(1, everyone), dtype=torch.float64)],
            Draw(0, 0, everyone),
            auxiliary_scale=1.0,
        )
        for weighted in (False, True)
    )
    assert torch.equal(plain.auxiliary_loss, heeded.auxiliary_loss)
    assert difference(plain.logits, heeded.logits) > 1e-3
