"""LDS (Franceschi et al., 2019): a graph learned as probabilities of edges, together with the network that uses it.

    python benchmarks/paper/lds.py --partition DIR [--seeds 0,1,2] [--epochs 100] [--memory 8GiB] [--json]

inner   a graph convolutional network learns the training labels, on a graph drawn anew in every step from the
        probabilities of all pairs of nodes
outer   every few steps the probabilities move against the gradient of the validation loss, taken through those steps
        in reverse and through the draws as if these were the probabilities themselves, and are cut to 0 .. 1

Half of the validation nodes are for the outer loss, the others choose the best epoch and end the training; `valid` is
the score of the latter. An epoch is one move of the probabilities with the steps before it. The start is the
partition's own graph: for a graph of neighbors, make the partition with --knn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from bilevel import Graph, Problem, Settings, draw_graph, hypergradient, move, unroll
from pairwise import Nodes, PairwiseLearner, matrix_of, rank_of, run_command
from torch import Tensor

from nfdist import seeds
from nfdist.errors import ConfigError
from nfdist.store.source_graph import TRAIN, UNASSIGNED, VALID

MATRICES = 5  # of all pairs that a move of the probabilities holds at its peak


@dataclass
class Training:
    """What was learned: probabilities of edges [n, n], the scores of every epoch and the best of them."""

    probabilities: Tensor
    epochs: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None


def train_lds(nodes: Nodes, settings: Settings, seed: int) -> Training:
    """Learn a graph and its network; without a graph to start from, every probability starts at 0."""
    outer_rows, held_split = halve_validation(nodes.split, seed)
    train_rows = (nodes.split == TRAIN).nonzero()[:, 0]
    held = replace(nodes, split=held_split)
    training = Training(matrix_of(nodes.graph, len(nodes.features), nodes.features.dtype))
    fruitless = 0
    for start in range(settings.epochs):
        own = seeds.derive(seed, "lds start", start)
        sample = partial(draw_graph, seed=own)
        problem = Problem(nodes.features, nodes.labels, nodes.task, train_rows, outer_rows, settings, own, sample)
        fruitless = 0 if train_start(problem, training, held) else fruitless + 1
        if fruitless == settings.restarts or len(training.epochs) >= settings.epochs:
            break
    return training


def train_start(problem: Problem, training: Training, nodes: Nodes) -> bool:
    """Train a new network until it gets no better; whether it brought the best epoch of all."""
    settings, best_here, since_best, better = problem.settings, (-1.0, 0.0), 0, False
    for probabilities, weights in moves(problem, training):
        epoch = nodes.scores(len(training.epochs) + 1, averaged(problem, probabilities, weights))
        training.epochs.append(epoch)
        rank = rank_of(epoch)
        if training.best is None or rank > rank_of(training.best):
            training.best, better = epoch, True
        best_here, since_best = (rank, 0) if rank > best_here else (best_here, since_best + 1)
        if since_best == settings.patience or len(training.epochs) >= settings.epochs:
            break
    return better


def moves(problem: Problem, training: Training) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """The probabilities and the weights after each epoch of one start, without end."""
    settings, state, step = problem.settings, problem.first_state(), 0
    while True:
        rate = settings.outer_rate * settings.outer_decay ** len(training.epochs)
        states = unroll(problem, training.probabilities, state, step)
        move(training.probabilities, hypergradient(problem, training.probabilities, states, step), rate)
        state, step = states[-1], step + settings.steps
        yield training.probabilities, state[:4]


@torch.no_grad()
def averaged(problem: Problem, probabilities: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Logarithms of class probabilities, averaged over drawn graphs that no step has seen."""
    total = torch.zeros(())
    for number in range(1, problem.settings.samples + 1):
        total = total + problem.predict(weights, Graph(problem.sample(probabilities, -number))).softmax(1)
    return (total / problem.settings.samples).clamp(min=1e-30).log()


def halve_validation(split: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """The rows of the outer loss, and the split in which these belong to no part."""
    rows = (split == VALID).nonzero()[:, 0]
    if len(rows) < 2:
        raise ConfigError(f"LDS needs at least 2 validation nodes, got {len(rows)}: give --split more of them")
    outer = rows[torch.randperm(len(rows), generator=seeds.generator(seed, "lds validation"))[: len(rows) // 2]]
    held = split.clone()
    held[outer] = UNASSIGNED
    return outer, held


def best_epoch(nodes: Nodes, settings: Settings, seed: int) -> dict[str, Any]:
    best = train_lds(nodes, settings, seed).best
    assert best is not None
    return best


LEARNER = PairwiseLearner("LDS", MATRICES, Settings(), ("epochs", "samples", "outer_rate"), best_epoch)

if __name__ == "__main__":
    run_command(LEARNER, __doc__)
