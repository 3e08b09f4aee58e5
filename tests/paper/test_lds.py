"""LDS: its hypergradient is that of the unrolled training, and what it learns are probabilities of undirected edges."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import bilevel
import lds
import pytest
import torch
from bilevel import Graph, Problem, Settings, as_it_is, draw_graph, hypergradient, unroll
from pairwise import matrix_of, run_command
from torch import Tensor

from nfdist import seeds
from nfdist.errors import ConfigError
from nfdist.model.task import Task
from nfdist.store.source_graph import TEST, TRAIN, VALID
from tests.paper.building import two_communities
from tests.training.building import build_partition

NODES, FEATURES, CLASSES, STEPS = 12, 5, 3, 4
SETTINGS = Settings(channels=4, steps=STEPS, samples=2, epochs=6, patience=2)
TASK = Task("single", CLASSES)


def drawn(*shape: int, name: str) -> Tensor:
    return torch.rand(shape, generator=seeds.generator(0, name), dtype=torch.float64)


def symmetric_probabilities() -> Tensor:
    upper = drawn(NODES, NODES, name="probabilities").triu(1)
    return upper + upper.t()


def problem(**changes: Any) -> Problem:
    labels = torch.arange(NODES) % CLASSES
    features = drawn(NODES, FEATURES, name="features") - 0.5
    whole = Problem(features, labels, TASK, torch.arange(5), torch.arange(5, 9), SETTINGS, 3, as_it_is)
    return replace(whole, **changes)


def unrolled_loss(own: Problem, probabilities: Tensor, state: list[Tensor], first_step: int) -> float:
    """The outer loss after the steps of an epoch, as a function of the probabilities."""
    states = unroll(own, probabilities, state, first_step)
    return outer_loss(own, states[-1], own.sample(probabilities, first_step + STEPS))


def outer_loss(own: Problem, state: list[Tensor], matrix: Tensor) -> float:
    return float(own.outer_loss(state[:4], Graph(matrix)).detach())


@pytest.mark.parametrize("first_step", [0, STEPS], ids=["first epoch", "second epoch"])
def test_the_hypergradient_is_the_slope_of_the_unrolled_training(first_step: int) -> None:
    own, probabilities = problem(), symmetric_probabilities()
    state = own.first_state()
    if first_step:
        state = unroll(own, probabilities, state, 0)[-1]
    gradient = hypergradient(own, probabilities, unroll(own, probabilities, state, first_step), first_step)
    assert torch.equal(gradient, gradient.t())
    assert not gradient.diagonal().any()
    step = 1e-6
    for row, column in [(0, 1), (2, 7), (5, 6), (3, 11), (10, 11)]:
        sides = []
        for sign in (1, -1):
            moved = probabilities.clone()
            moved[row, column] += sign * step
            moved[column, row] += sign * step
            sides.append(unrolled_loss(own, moved, state, first_step))
        assert float(gradient[row, column]) == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-4, abs=1e-9)


def test_a_step_of_the_network_is_a_step_of_adam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bilevel, "LEAST_SQUARE", 1e-24)
    own, probabilities = problem(), symmetric_probabilities()
    state = own.first_state()
    moved = unroll(own, probabilities, state, 0)[-1][:4]
    weights = [tensor.clone().requires_grad_() for tensor in state[:4]]
    decays = [SETTINGS.weight_decay, 0, 0, 0]
    groups = [{"params": [weight], "weight_decay": decay} for weight, decay in zip(weights, decays, strict=True)]
    optimizer = torch.optim.Adam(groups, lr=SETTINGS.learning_rate, eps=1e-12)
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = own.predict(weights, Graph(probabilities), step)
        TASK.loss(logits[own.train_rows], own.labels[own.train_rows]).mean.backward()
        optimizer.step()
    for mine, theirs in zip(moved, weights, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-7)


def test_spread_is_the_normalized_graph_with_self_loops() -> None:
    matrix, rows = symmetric_probabilities(), drawn(NODES, 3, name="rows")
    looped = matrix + torch.eye(NODES, dtype=torch.float64)
    root = torch.diag(looped.sum(1) ** -0.5)
    graph = Graph(matrix)
    assert torch.allclose(bilevel.spread(graph, graph.root(), rows), root @ looped @ root @ rows, atol=1e-14)


def test_graphs_are_drawn_with_their_probabilities() -> None:
    probabilities = torch.full((60, 60), 0.3).fill_diagonal_(0)
    graphs = torch.stack([draw_graph(probabilities, step, seed=1) for step in range(50)])
    assert torch.equal(graphs, graphs.transpose(1, 2))
    assert not graphs.diagonal(dim1=1, dim2=2).any()
    pairs = 50 * 60 * 59 / 2
    assert float(graphs.sum()) / 2 / pairs == pytest.approx(0.3, abs=4 * (0.21 / pairs) ** 0.5)
    assert torch.equal(draw_graph(probabilities, 7, seed=1), graphs[7])
    assert not torch.equal(draw_graph(probabilities, 7, seed=2), graphs[7])
    certain = (drawn(60, 60, name="certain") < 0.5).float().triu(1)
    certain = certain + certain.t()
    assert torch.equal(draw_graph(certain, 0, seed=1), certain)


def test_a_graph_is_the_same_however_many_rows_are_drawn_at_once() -> None:
    probabilities = torch.full((60, 60), 0.3).fill_diagonal_(0)
    whole = draw_graph(probabilities, 2, seed=1)
    assert torch.equal(draw_graph(probabilities, 2, seed=1, rows_at_once=7), whole)


@pytest.mark.parametrize("with_graph", [True, False])
def test_what_is_learned_are_probabilities_of_undirected_edges(with_graph: bool) -> None:
    nodes = two_communities()
    nodes = nodes if with_graph else replace(nodes, graph=None)
    start = matrix_of(nodes.graph, 40, torch.float32)
    settings = replace(SETTINGS, outer_rate=20.0)
    training = lds.train_lds(nodes, settings, 0)
    learned = training.probabilities
    assert 0 <= float(learned.min()) <= float(learned.max()) <= 1
    assert torch.equal(learned, learned.t())
    assert not learned.diagonal().any()
    assert not torch.equal(learned, start)
    assert [epoch["epoch"] for epoch in training.epochs] == list(range(1, len(training.epochs) + 1))
    assert training.best is not None
    assert training.best["valid"] == max(epoch["valid"] for epoch in training.epochs)
    assert lds.train_lds(nodes, settings, 0).epochs == training.epochs


def test_moves_lower_the_outer_loss() -> None:
    nodes = two_communities()
    outer_rows, _ = lds.halve_validation(nodes.split, 0)
    train_rows = (nodes.split == TRAIN).nonzero()[:, 0]
    settings = replace(SETTINGS, dropout=0.0, outer_rate=0.5, outer_decay=1.0)
    own = Problem(nodes.features, nodes.labels, nodes.task, train_rows, outer_rows, settings, 0, as_it_is)
    probabilities = 0.5 * matrix_of(nodes.graph, 40, torch.float32)
    state = own.first_state()
    losses = []
    for _ in range(5):
        states = unroll(own, probabilities, state, 0)
        losses.append(outer_loss(own, states[-1], probabilities))
        bilevel.move(probabilities, hypergradient(own, probabilities, states, 0), settings.outer_rate)
    assert losses == sorted(losses, reverse=True)


def test_half_of_the_validation_nodes_choose_the_epoch() -> None:
    split = torch.tensor([TRAIN, VALID, VALID, VALID, TEST, VALID], dtype=torch.int8)
    outer, held = lds.halve_validation(split, 0)
    assert len(outer) == 2
    assert (split[outer] == VALID).all()
    assert sorted((held == VALID).nonzero()[:, 0].tolist() + outer.tolist()) == [1, 2, 3, 5]
    assert (held == TRAIN).sum() == (held == TEST).sum() == 1
    with pytest.raises(ConfigError, match="at least 2 validation nodes, got 1"):
        lds.halve_validation(split[:2], 0)


def test_the_command_prints_one_line_or_says_what_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = build_partition(tmp_path / "graph", 1)
    words = ["lds.py", "--partition", str(graph), "--seeds", "0,1", "--epochs", "2", "--samples", "2", "--json"]
    monkeypatch.setattr(sys, "argv", words)
    run_command(lds.LEARNER, None)
    (line,) = capsys.readouterr().out.splitlines()
    result = json.loads(line)
    assert [entry["seed"] for entry in result["per_seed"]] == [0, 1]
    assert all({"valid", "test", "seconds", "epoch"} <= entry.keys() for entry in result["per_seed"])
    tests = [entry["test"] for entry in result["per_seed"]]
    assert result["test_mean"] == pytest.approx(sum(tests) / 2)
    assert result["test_std"] == pytest.approx(abs(tests[0] - tests[1]) / 2**0.5)
    assert result["peak_memory_bytes"] > 2**20
    monkeypatch.setattr(sys, "argv", [*words, "--epochs", "0"])
    with pytest.raises(SystemExit, match="2"):
        run_command(lds.LEARNER, None)
    assert capsys.readouterr().err == "lds: --epochs must be at least 1 and finite, got 0\n"
    monkeypatch.setattr(sys, "argv", [*words, "--memory", "1MiB"])
    with pytest.raises(SystemExit, match="2"):
        run_command(lds.LEARNER, None)
    refused = capsys.readouterr()
    assert refused.out == ""
    assert refused.err.startswith("lds: LDS on 245 nodes needs ")
    assert len(refused.err.splitlines()) == 1
