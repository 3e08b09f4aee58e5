"""ProGNN: its gradient and its proximal steps are those of the definitions, and training is by them."""

from dataclasses import replace

import prognn
import pytest
import torch
from bilevel import Graph, Problem, as_it_is, unroll
from bilevel import Settings as Network
from pairwise import matrix_of, rank_of
from prognn import Settings
from torch import Tensor

from nfdist import seeds
from nfdist.store.source_graph import TRAIN
from tests.paper.building import two_communities

NODES = two_communities(20, torch.float64)
GIVEN = matrix_of(NODES.graph, 20, torch.float64)
SETTINGS = Settings(smoothness=0.3, network=20.0, graph_rate=0.05)


def some_graph() -> Tensor:
    """Symmetric and between 0 and 1, with a node that has no edges."""
    drawn = torch.rand(20, 20, generator=seeds.generator(0, "graph"), dtype=torch.float64).triu(1)
    matrix = drawn * (drawn > 0.6)
    matrix[:, 7] = matrix[7] = 0
    return matrix + matrix.t()


def objective(matrix: Tensor, weights: list[Tensor], settings: Settings) -> Tensor:
    """The smooth terms, as they are written in the paper."""
    first, first_bias, second, second_bias = weights
    looped = matrix + torch.eye(20, dtype=torch.float64)
    root = torch.diag(looped.sum(1) ** -0.5)
    normalized = root @ looped @ root
    logits = (
        normalized @ ((normalized @ (NODES.features @ first + first_bias)).relu() @ second)
        + normalized.sum(1, keepdim=True) * second_bias
    )
    rows = NODES.split == TRAIN
    loss = torch.nn.functional.cross_entropy(logits[rows], NODES.labels[rows])
    degrees = torch.diag(matrix.sum(1) + prognn.LEAST_DEGREE)
    inverse_root = torch.linalg.inv(degrees**0.5)
    laplacian = inverse_root @ (degrees - matrix) @ inverse_root
    smooth = (NODES.features.t() @ laplacian @ NODES.features).trace()
    total: Tensor = (matrix - GIVEN).square().sum() + settings.network * loss + settings.smoothness * smooth
    return total


def lowered(matrix: Tensor, by: float) -> Tensor:
    left, values, right = torch.linalg.svd(matrix)
    rebuilt: Tensor = left @ torch.diag((values - by).clamp(min=0)) @ right
    return rebuilt


def trained_state() -> tuple[Problem, list[Tensor]]:
    problem = prognn.problem_of(NODES, Network(channels=4, steps=3), 1)
    return problem, unroll(problem, some_graph(), problem.first_state(), 0)[-1]


@pytest.mark.parametrize("smoothness", [0.0, 0.3])
def test_the_gradient_is_that_of_the_written_terms(smoothness: float) -> None:
    settings = replace(SETTINGS, smoothness=smoothness)
    problem, state = trained_state()
    matrix = some_graph()
    alike = NODES.features @ NODES.features.t()
    mine = prognn.gradient(problem, matrix, GIVEN, alike, state[:4], settings)
    free = matrix.clone().requires_grad_()
    (theirs,) = torch.autograd.grad(objective((free + free.t()) / 2, state[:4], settings), free)
    assert torch.allclose(mine, theirs, rtol=1e-10, atol=1e-12 * float(theirs.abs().max()))
    assert torch.equal(mine, mine.t())


def test_singular_values_fall() -> None:
    matrix = some_graph() - 0.2  # with eigenvalues of both signs
    for by in (0.1, 1.0, 100.0):
        mine = matrix.clone()
        prognn.lower_singular_values(mine, by)
        assert torch.allclose(mine, lowered(matrix, by), atol=1e-12)
        assert torch.equal(mine, mine.t())


def test_an_epoch_is_a_proximal_step_and_steps_of_the_network() -> None:
    problem = prognn.problem_of(NODES, Network(channels=4, steps=2), 1)
    matrix, state, rate = GIVEN.clone(), problem.first_state(), SETTINGS.graph_rate
    for number, (mine, weights) in zip(range(3), prognn.epochs(problem, NODES, SETTINGS), strict=False):
        free = matrix.clone().requires_grad_()
        (slope,) = torch.autograd.grad(objective((free + free.t()) / 2, state[:4], SETTINGS), free)
        matrix = lowered(matrix - rate * slope, rate * SETTINGS.low_rank)
        matrix = (matrix.sign() * (matrix.abs() - rate * SETTINGS.sparsity).clamp(min=0)).clamp(0, 1)
        for step in (2 * number, 2 * number + 1):
            leaves = [tensor.requires_grad_() for tensor in state]
            state = [each.detach() for each in problem.inner_step(leaves, Graph(matrix), step, keep_graph=False)]
        assert torch.allclose(mine, matrix, atol=1e-10)
        assert all(torch.allclose(*pair, atol=1e-8) for pair in zip(weights, state[:4], strict=True))


def test_the_best_epoch_is_the_same_again_and_ends_by_patience() -> None:
    nodes = two_communities()
    settings = Settings(epochs=30, patience=3)
    best = prognn.best_epoch(nodes, settings, 4)
    assert best == prognn.best_epoch(nodes, settings, 4) != prognn.best_epoch(nodes, settings, 5)
    problem = prognn.problem_of(nodes, Network(steps=2), 4)
    assert problem.sample is as_it_is
    followed = [
        nodes.scores(number, problem.predict(weights, Graph(matrix)))
        for number, (matrix, weights) in zip(
            range(1, best["epoch"] + 4), prognn.epochs(problem, nodes, settings), strict=False
        )
    ]
    ranks = [rank_of(epoch) for epoch in followed]
    assert max(ranks) == rank_of(best) == ranks[best["epoch"] - 1]
