"""BGCN: the block model climbs the posterior that is written down, and predictions are averaged over drawn graphs."""

import math

import bgcn
import block_model
import pytest
import torch
from bilevel import Graph, draw_graph, unroll
from block_model import DELTA, PRIOR_RATE, BlockModel
from pairwise import matrix_of, rank_of
from torch import Tensor

from nfdist import seeds
from tests.paper.building import two_communities

NODES = two_communities(20, torch.float64)
GRAPH = matrix_of(NODES.graph, 20, torch.float64)


def some_model() -> BlockModel:
    generator = seeds.generator(0, "counts")
    memberships = torch.rand(20, 3, generator=generator, dtype=torch.float64) + 0.1
    return BlockModel(memberships, torch.rand(3, 2, generator=generator, dtype=torch.float64) * 5 + 1)


def posterior(memberships: Tensor, strengths: Tensor) -> Tensor:
    """The logarithm of the posterior, pair by pair, but for a constant."""
    shares, densities = memberships / memberships.sum(1, keepdim=True), strengths[:, 1] / strengths.sum(1)
    total = -PRIOR_RATE * (memberships.sum() + strengths.sum())
    for one in range(20):
        for other in range(one):
            same = shares[one] * shares[other]
            probability = (same * densities).sum() + (1 - same.sum()) * DELTA
            total = total + (probability if GRAPH[one, other] else 1 - probability).log()
    return total


def test_the_gradient_is_that_of_the_posterior() -> None:
    model = some_model()
    free = [each.clone().requires_grad_() for each in (model.memberships, model.strengths)]
    theirs = torch.autograd.grad(posterior(*free), free)
    for rows_at_once in (256, 7):
        mine = model.gradient(GRAPH, rows_at_once)
        assert all(torch.allclose(*pair, rtol=1e-10, atol=1e-12) for pair in zip(mine, theirs, strict=True))


def test_a_step_is_scaled_by_the_counts_and_turned_up_below_zero() -> None:
    model, size = some_model(), 3.0
    moved = model.step(GRAPH, size)
    for mine, before, slope in zip(
        (moved.memberships, moved.strengths), (model.memberships, model.strengths), model.gradient(GRAPH), strict=True
    ):
        assert torch.allclose(mine, (before * (1 + size * slope)).abs())
    assert (1 + size * model.gradient(GRAPH)[0] < 0).any()
    first = model.infer(GRAPH, 1)
    assert torch.equal(first.memberships, model.step(GRAPH, 0.5 / math.sqrt(block_model.FIRST_STEP)).memberships)


def test_inference_climbs_the_posterior() -> None:
    models = [some_model()]
    for _ in range(5):
        models.append(models[-1].infer(GRAPH, 20))
    heights = [float(posterior(model.memberships, model.strengths)) for model in models]
    assert heights == sorted(heights)
    assert len(set(heights)) == 6


def test_it_starts_from_likeliest_classes_and_their_pairs() -> None:
    shares = torch.rand(20, 2, generator=seeds.generator(1, "shares"), dtype=torch.float64)
    shares = shares / shares.sum(1, keepdim=True)
    model, classes = BlockModel.start(shares, GRAPH), shares.argmax(1)
    assert torch.allclose(model.shares(), shares)
    for community in range(2):
        members = (classes == community).nonzero()[:, 0]
        linked = sum(float(GRAPH[one, other]) for one in members for other in members if one < other)
        pairs = math.comb(len(members), 2)
        assert model.strengths[community].tolist() == [pairs - linked + 1, linked + 1]


def test_probabilities_are_those_of_the_model_and_certain_ones_have_two_values() -> None:
    model = some_model()
    probabilities, shares = model.probabilities(), model.shares()
    same = shares[3] * shares[11]
    assert float(probabilities[3, 11]) == pytest.approx(
        float((same * model.densities()).sum() + (1 - same.sum()) * DELTA), rel=1e-12
    )
    assert not probabilities.diagonal().any()
    likeliest, certain = model.memberships.argmax(1), model.certain().probabilities()
    expected = torch.where(likeliest[:, None] == likeliest, model.densities()[likeliest], DELTA).fill_diagonal_(0)
    assert torch.allclose(certain, expected)


def test_the_last_epochs_are_averaged_over_the_graphs_of_their_steps() -> None:
    nodes = two_communities()
    settings = bgcn.Settings(epochs=12, first_epochs=6, posterior_every=4, averaged=3)
    observed, problem = matrix_of(nodes.graph, 40, torch.float32), bgcn.problem_of(nodes, 2)
    state, kept = problem.first_state(), []
    for number in range(12):
        graph = observed
        if number in (6, 10):
            shares = problem.predict(state[:4], Graph(observed)).softmax(1)
            pairs = BlockModel.start(shares, observed).infer(observed).certain().probabilities()
        if number >= 6:
            graph = draw_graph(pairs, number, seed=problem.seed)
        state = unroll(problem, graph, state, number)[-1]
        kept.append(problem.predict(state[:4], Graph(graph)).softmax(1))
    mine = list(bgcn.predictions(nodes, settings, 2))
    assert [number for number, _ in mine] == [10, 11, 12]
    assert all(torch.equal(shares, kept[number - 1]) for number, shares in mine)
    averages = [nodes.scores(number, sum(kept[9:number]).log()) for number in (10, 11, 12)]  # type: ignore[union-attr]
    assert bgcn.best_epoch(nodes, settings, 2) == max(averages, key=rank_of)
