"""Adjacency against dense matrices."""

from collections.abc import Callable

import pytest
import torch

from nfdist import seeds
from nfdist.errors import ConfigError
from nfdist.sparse.adjacency import Adjacency, index_type
from nfdist.sparse.knn import knn_graph
from nfdist.sparse.spmm import sddmm, spmm, spmm_t
from tests.needs import needs_dgl

Build = Callable[[], tuple[Adjacency, torch.Tensor]]


def random_graph(nodes: int = 25, edges: int = 60) -> tuple[Adjacency, torch.Tensor]:
    """A graph with duplicates and self-loops, and its 0/1 matrix with the target as row."""
    ends = torch.randint(nodes, (2, edges), generator=seeds.generator(nodes, "ends"))
    matrix = torch.zeros(nodes, nodes, dtype=torch.float64)
    matrix[ends[1], ends[0]] = 1
    return Adjacency.from_edges(ends[0], ends[1], nodes), matrix


def rectangle(targets: int = 9) -> tuple[Adjacency, torch.Tensor]:
    """The in-edges of the first targets of a random graph, and their rows of its matrix."""
    graph, matrix = random_graph()
    end = int(graph.indptr[targets])
    return Adjacency(graph.indptr[: targets + 1], graph.sources[:end], graph.num_nodes), matrix[:targets]


def matrix_of(graph: Adjacency) -> torch.Tensor:
    matrix = torch.zeros(graph.num_nodes, graph.num_sources, dtype=torch.float64)
    matrix.index_put_(
        (graph.targets.long(), graph.sources.long()), torch.ones(graph.num_edges, dtype=torch.float64), True
    )
    return matrix


def test_edges_listed_twice_count_once_and_degrees_are_those_of_the_pattern() -> None:
    graph, matrix = random_graph()
    assert torch.equal(matrix_of(graph), matrix)
    assert torch.equal(graph.in_degrees, matrix.sum(1).long())
    assert torch.equal(graph.out_degrees, matrix.sum(0).long())
    assert graph.sources.dtype == torch.int32


@pytest.mark.parametrize("order", [1, 2, 4])
def test_powers_are_the_patterns_of_dense_powers(order: int) -> None:
    graph, matrix = random_graph()
    dense = torch.linalg.matrix_power(matrix + torch.eye(25, dtype=torch.float64), order)
    assert torch.equal(matrix_of(graph.power(order)), (dense > 0).double())


def test_a_power_that_is_too_large_is_refused_with_an_estimate() -> None:
    graph, _ = random_graph()
    with pytest.raises(ConfigError, match=r"relation.order = 3 needs up to \d+ edges .* limit of 100"):
        graph.power(3, max_edges=100)
    with pytest.raises(ConfigError, match="at least 1, got 0"):
        graph.power(0)


@pytest.mark.parametrize("targets", [0, 1, 9])
def test_degrees_of_a_rectangle_count_its_targets_and_all_its_sources(targets: int) -> None:
    graph, matrix = rectangle(targets)
    assert (graph.num_nodes, graph.num_sources, graph.to("cpu").num_sources) == (targets, 25, 25)
    assert torch.equal(matrix_of(graph), matrix)
    assert torch.equal(graph.in_degrees, matrix.sum(1).long())
    assert torch.equal(graph.out_degrees, matrix.sum(0).long())


@pytest.mark.parametrize("first", [random_graph, rectangle])
def test_paths_of_two_edges_are_the_dense_product(first: Build) -> None:
    (graph, matrix), (step, step_matrix) = first(), random_graph()
    product = matrix @ step_matrix
    assert torch.equal(matrix_of(graph.after(step)), (product > 0).double())
    assert graph.paths_after(step) == product.sum()


def test_a_rectangle_has_no_powers() -> None:
    graph, _ = rectangle()
    for refused in (graph.symmetrized, lambda: graph.power(1)):
        with pytest.raises(ConfigError, match="9 targets and 25 sources"):
            refused()


@pytest.mark.parametrize("build", [random_graph, rectangle])
def test_transposing_turns_every_edge_around_and_remembers_where_it_was(build: Build) -> None:
    graph, matrix = build()
    turned, positions = graph.transposed
    assert torch.equal(matrix_of(turned), matrix.t())
    assert torch.equal(graph.targets[positions], turned.sources)
    assert torch.equal(graph.sources[positions], turned.targets)


def test_symmetrizing_keeps_one_edge_each_way() -> None:
    graph, matrix = random_graph()
    assert torch.equal(matrix_of(graph.symmetrized()), ((matrix + matrix.t()) > 0).double())


@pytest.mark.parametrize("build", [random_graph, rectangle])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weighted_sums_over_in_edges_equal_the_dense_product(dtype: torch.dtype, build: Build) -> None:
    graph, matrix = build()
    rows = torch.randn(25, 6, generator=seeds.generator(1, "rows"), dtype=dtype)
    weights = torch.rand(graph.num_edges, generator=seeds.generator(2, "weights"), dtype=dtype)
    dense = torch.zeros(matrix.shape, dtype=dtype).index_put((graph.targets.long(), graph.sources.long()), weights)
    assert torch.allclose(spmm(graph, rows, weights), dense @ rows, atol=1e-6)


def test_a_graph_without_edges_and_a_graph_without_nodes() -> None:
    nothing = torch.zeros(0, dtype=torch.long)
    graph = Adjacency.from_edges(nothing, nothing, 3)
    assert graph.num_edges == 0
    assert torch.equal(spmm(graph, torch.ones(3, 2), torch.zeros(0)), torch.zeros(3, 2))
    assert graph.power(2).num_edges == 3
    assert Adjacency.from_edges(nothing, nothing, 0).num_nodes == 0


def test_edges_out_of_range_are_named() -> None:
    with pytest.raises(ConfigError, match="source 5, outside the 5 nodes"):
        Adjacency.from_edges(torch.tensor([0, 5]), torch.tensor([0, 1]), 5)
    with pytest.raises(ConfigError, match="target -2, outside the 5 nodes"):
        Adjacency.from_edges(torch.tensor([0, 1]), torch.tensor([-2, 1]), 5)
    with pytest.raises(ConfigError, match="two equal lists"):
        Adjacency.from_edges(torch.tensor([0, 1]), torch.tensor([1]), 5)


def test_knn_graphs_hold_the_node_itself_and_run_both_ways() -> None:
    points = torch.tensor([[0.0], [1.0], [1.5], [10.0]])
    matrix = matrix_of(knn_graph(points, 2))
    assert torch.equal(matrix, matrix.t())
    assert torch.equal(matrix, torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]).double())
    with pytest.raises(ConfigError, match="k between 1 and that, got 5"):
        knn_graph(points, 5)


@pytest.mark.parametrize("build", [random_graph, rectangle])
def test_chosen_edges_are_those_of_the_matrix(build: Build) -> None:
    graph, matrix = build()
    kept = torch.rand(graph.num_edges, generator=seeds.generator(1, "kept")) < 0.5
    wanted = matrix.clone()
    wanted[graph.targets[~kept].long(), graph.sources[~kept].long()] = 0
    chosen = graph.only(kept)
    assert torch.equal(matrix_of(chosen), wanted)
    assert (chosen.indptr.dtype, chosen.columns) == (graph.indptr.dtype, graph.columns)


@needs_dgl
def test_dgl_has_the_same_edges_and_degrees() -> None:
    graph, _ = random_graph()
    same = graph.dgl_graph
    assert sorted(same.formats()["created"]) == ["coo", "csc", "csr"]
    assert torch.equal(same.in_degrees().long(), graph.in_degrees)
    assert torch.equal(same.out_degrees().long(), graph.out_degrees)
    sources, targets = same.edges(order="eid")
    assert torch.equal(sources, graph.sources)
    assert torch.equal(targets, graph.targets)
    assert graph.dgl_graph is same


def test_sums_over_out_edges_and_products_of_ends_are_those_of_the_matrix() -> None:
    graph = Adjacency(torch.tensor([0, 2, 2, 3]), torch.tensor([1, 4, 0]), columns=5)
    matrix, weights = torch.zeros(3, 5, dtype=torch.float64), torch.tensor([2.0, -3.0, 0.5], dtype=torch.float64)
    matrix[graph.targets, graph.sources] = weights
    left, right = torch.arange(6.0, dtype=torch.float64).view(3, 2), torch.arange(10.0, dtype=torch.float64).view(5, 2)
    assert torch.equal(spmm_t(graph, left, weights), matrix.t() @ left)
    assert torch.equal(sddmm(graph, left, right), (left @ right.t())[graph.targets, graph.sources])


def test_what_was_turned_moves_with_the_graph_to_another_device() -> None:
    graph = Adjacency(torch.tensor([0, 2, 2, 3]), torch.tensor([1, 2, 0]))
    graph.transposed  # noqa: B018
    turned, positions = graph.to("meta").transposed
    assert {turned.indptr.device.type, turned.sources.device.type, positions.device.type} == {"meta"}


@pytest.mark.parametrize("build", [random_graph, rectangle])
def test_copies_are_blocks_along_the_diagonal(build: Build) -> None:
    graph, matrix = build()
    copies, dense = graph.block_diagonal(3), torch.block_diag(matrix, matrix, matrix)
    assert torch.equal(matrix_of(copies), dense)
    assert copies.sources.dtype == copies.indptr.dtype == torch.int32
    draw = seeds.generator(1, "rows")
    weights = torch.rand(copies.num_edges, generator=draw, dtype=torch.float64)
    at_targets, at_sources = (torch.rand(size, 4, generator=draw, dtype=torch.float64) for size in dense.shape)
    weighted = torch.zeros_like(dense)
    weighted[copies.targets.long(), copies.sources.long()] = weights
    torch.testing.assert_close(spmm(copies, at_sources, weights), weighted @ at_sources)
    torch.testing.assert_close(spmm_t(copies, at_targets, weights), weighted.t() @ at_targets)
    products = (at_targets @ at_sources.t())[copies.targets.long(), copies.sources.long()]
    torch.testing.assert_close(sddmm(copies, at_targets, at_sources), products)


def test_copies_are_made_once_and_one_is_the_graph_itself() -> None:
    graph, _ = random_graph()
    assert graph.block_diagonal(2) is graph.block_diagonal(2)
    assert graph.block_diagonal(1) is graph


def test_copies_of_a_graph_without_edges_have_none() -> None:
    copies = Adjacency(torch.zeros(4, dtype=torch.int32), torch.zeros(0, dtype=torch.int32)).block_diagonal(2)
    assert (copies.num_nodes, copies.num_sources, copies.num_edges) == (6, 6, 0)


@pytest.mark.parametrize(("largest", "kind"), [(2**31 - 1, torch.int32), (2**31, torch.int64)])
def test_numbers_beyond_32_bits_are_kept_in_64(largest: int, kind: torch.dtype) -> None:
    assert index_type(largest) is kind
