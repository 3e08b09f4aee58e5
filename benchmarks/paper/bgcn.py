"""BGCN (Zhang et al., 2019): graphs drawn from a posterior, and the predictions of one network over all of them.

    python benchmarks/paper/bgcn.py --partition DIR [--seeds 0,1,2] [--epochs 300] [--memory 8GiB] [--json]

start      a graph convolutional network learns the training labels on the input graph
posterior  an assortative mixed-membership block model of the input graph (block_model.py), whose memberships start
           from the network's predictions there; again every few epochs
ensemble   the network goes on, every step with dropout and on a new graph drawn from that model; the predictions of
           the last epochs, each on the graph of its step, are averaged

Validation chooses among these epochs where the average ends. The constants are those of the published code, and as
there a node belongs to its likeliest community alone where graphs are drawn: with memberships drawn for every pair, as
in the paper, half of the edges join different classes as long as the network is unsure.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from bilevel import Graph, Problem, as_it_is, draw_graph, unroll
from bilevel import Settings as Network
from block_model import ITERATIONS, BlockModel
from pairwise import Nodes, PairwiseLearner, matrix_of, rank_of, run_command
from torch import Tensor

from nfdist import seeds
from nfdist.store.source_graph import TRAIN

MATRICES = 5  # of all pairs, at the peak


@dataclass(frozen=True)
class Settings:
    """The lengths of the parts, in epochs of one step."""

    epochs: int = 300
    first_epochs: int = 200  # on the input graph
    posterior_every: int = 20
    iterations: int = ITERATIONS  # of the posterior
    averaged: int = 60  # epochs, the last ones


def best_epoch(nodes: Nodes, settings: Settings, seed: int) -> dict[str, Any]:
    """Train and average; the scores of the best epoch."""
    total, best = nodes.features.new_zeros(()), None
    for number, shares in predictions(nodes, settings, seed):
        total = total + shares
        epoch = nodes.scores(number, total.clamp(min=1e-30).log())
        best = epoch if best is None or rank_of(epoch) > rank_of(best) else best
    assert best is not None
    return best


def predictions(nodes: Nodes, settings: Settings, seed: int) -> Iterator[tuple[int, Tensor]]:
    """The numbers of the epochs that are averaged, and the class probabilities [n, k] of each."""
    observed = matrix_of(nodes.graph, len(nodes.features), nodes.features.dtype)
    problem = problem_of(nodes, seed)
    state, first = problem.first_state(), min(settings.first_epochs, settings.epochs - 1)
    drawing = replace(problem, sample=partial(draw_graph, seed=problem.seed))
    for number in range(settings.epochs):
        if number < first:
            state = unroll(problem, observed, state, number)[-1]
            continue
        if (number - first) % settings.posterior_every == 0:
            shares = probabilities_on(problem, state, observed)
            pairs = BlockModel.start(shares, observed).infer(observed, settings.iterations).certain().probabilities()
        drawn = drawing.sample(pairs, number)
        state = unroll(problem, drawn, state, number)[-1]
        if number >= settings.epochs - settings.averaged:
            yield number + 1, probabilities_on(problem, state, drawn)


def problem_of(nodes: Nodes, seed: int) -> Problem:
    """The network's training, a step an epoch; it has no outer rows."""
    train_rows, own = (nodes.split == TRAIN).nonzero()[:, 0], seeds.derive(seed, "bgcn")
    return Problem(
        nodes.features, nodes.labels, nodes.task, train_rows, train_rows[:0], Network(steps=1), own, as_it_is
    )


@torch.no_grad()
def probabilities_on(problem: Problem, state: list[Tensor], matrix: Tensor) -> Tensor:
    """Class probabilities [n, k] by the network over a graph, without dropout."""
    return problem.predict(state[:4], Graph(matrix)).softmax(1)


LEARNER = PairwiseLearner("BGCN", MATRICES, Settings(), ("epochs", "first_epochs", "averaged"), best_epoch)

if __name__ == "__main__":
    run_command(LEARNER, __doc__)
