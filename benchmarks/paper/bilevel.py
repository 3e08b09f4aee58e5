"""The two levels of LDS: a network that learns on drawn graphs, and the gradient of its validation for their edges.

inner   w' = Φ(w, A), one step of Adam on the training loss of a network of two convolutions over a graph A drawn from
        the probabilities θ of all pairs of nodes
outer   the gradient of the validation loss for θ, through the steps in reverse, with dA/dθ taken as the identity
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nfdist import seeds
from nfdist.model.task import Task

MEAN_DECAY, SQUARE_DECAY, LEAST_SQUARE = 0.9, 0.999, 1e-12  # Adam's; the last is under the root, which it keeps smooth

ROWS_AT_ONCE = 128  # of a graph that is drawn: what is turned around is still in the cache

Sample = Callable[[Tensor, int], Tensor]  # a graph [n, n] of probabilities [n, n], as a function of the step


@dataclass(frozen=True)
class Settings:
    """The inner network and its training, and how the probabilities move."""

    channels: int = 16
    learning_rate: float = 0.01
    weight_decay: float = 5e-4
    dropout: float = 0.5
    steps: int = 5  # before each move, and as many as its gradient goes back through
    outer_rate: float = 1.0
    outer_decay: float = 0.99  # of the outer rate, a move
    samples: int = 16  # graphs whose predictions are averaged
    epochs: int = 100
    patience: int = 10  # epochs without a better score, after which the network starts anew
    restarts: int = 3  # new starts in a row that bring nothing better


class Graph:
    """A symmetric graph [n, n], and the gradient for it.

    That of a product of the graph with rows is a product of two narrow factors. Only these are kept, so that there is
    one matrix of all pairs in place of one for every product.
    """

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix
        self._ones = matrix.new_ones(len(matrix), 1).requires_grad_()
        self._factors: list[tuple[Tensor, Tensor]] | None = None

    def times(self, rows: Tensor) -> Tensor:
        product: Tensor = _Times.apply(rows, self)
        return product

    def root(self) -> Tensor:
        """D^(-1/2) [n, 1], D the degrees of A + I."""
        return (self.times(self._ones) + 1).rsqrt()

    def keep(self, left: Tensor, right: Tensor) -> None:
        """Note left rightᵀ as a part of the gradient, where that is wanted."""
        if self._factors is not None:
            self._factors.append((left.detach(), right.detach()))

    def pull_back(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], pulls: Sequence[Tensor] | None, total: Tensor
    ) -> list[Tensor]:
        """The gradients of the inputs; that of the graph is added to the total."""
        self._factors = []
        # Only paths to what is asked for are followed, and the ones are where the degrees start from.
        *gradients, _ = torch.autograd.grad(outputs, [*inputs, self._ones], pulls)
        left, right = (torch.cat(factors, 1) for factors in zip(*self._factors, strict=True))
        total.addmm_(left, right.t())
        return gradients


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, graph: Graph) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.graph = graph
        return graph.matrix @ rows

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        ctx.graph.keep(grad, *ctx.saved_tensors)
        return ctx.graph.times(grad), None


@dataclass(frozen=True)
class Problem:
    """The data of both objectives; `sample` draws the graph of a step, or is `as_it_is`."""

    features: Tensor
    labels: Tensor
    task: Task
    train_rows: Tensor
    outer_rows: Tensor
    settings: Settings
    seed: int
    sample: Sample

    def train_loss(self, weights: Sequence[Tensor], graph: Graph, step: int | None = None) -> Tensor:
        """The mean loss of the training labels, without decay."""
        logits = self.predict(weights, graph, step)[self.train_rows]
        return self.task.loss(logits, self.labels[self.train_rows]).mean

    def predict(self, weights: Sequence[Tensor], graph: Graph, step: int | None = None) -> Tensor:
        """Logits of a network of two convolutions; with dropout in a step."""
        first, first_bias, second, second_bias = weights
        root = graph.root()
        hidden = spread(graph, root, self.features @ first + first_bias).relu()
        if step is not None and self.settings.dropout:
            generator = seeds.generator(self.seed, "lds dropout", step)
            kept = torch.rand(hidden.shape, generator=generator) >= self.settings.dropout
            hidden = hidden * kept / (1 - self.settings.dropout)
        return spread(graph, root, hidden @ second + second_bias)

    def inner_step(self, state: Sequence[Tensor], graph: Graph, step: int, *, keep_graph: bool) -> list[Tensor]:
        """One step of Adam: weights, means and squares of gradients, differentiable if the graph of it is kept."""
        weights, means, squares = state[:4], state[4:8], state[8:]
        loss = self.train_loss(weights, graph, step) + self.settings.weight_decay / 2 * weights[0].square().sum()
        gradients = torch.autograd.grad(loss, weights, create_graph=keep_graph)
        means = [MEAN_DECAY * old + (1 - MEAN_DECAY) * new for old, new in zip(means, gradients, strict=True)]
        squares = [
            SQUARE_DECAY * old + (1 - SQUARE_DECAY) * new.square() for old, new in zip(squares, gradients, strict=True)
        ]
        rate = self.settings.learning_rate / (1 - MEAN_DECAY ** (step + 1))
        correction = 1 - SQUARE_DECAY ** (step + 1)
        moved = [
            weight - rate * mean / (square / correction + LEAST_SQUARE).sqrt()
            for weight, mean, square in zip(weights, means, squares, strict=True)
        ]
        return [*moved, *means, *squares]

    def outer_loss(self, weights: Sequence[Tensor], graph: Graph) -> Tensor:
        logits = self.predict(weights, graph)[self.outer_rows]
        return self.task.loss(logits, self.labels[self.outer_rows]).mean

    def first_state(self) -> list[Tensor]:
        """Weights as drawn (Glorot), and moments of zero."""
        widths = (self.features.shape[1], self.settings.channels, self.task.num_classes)
        weights: list[Tensor] = []
        for layer in range(2):
            shape = (widths[layer], widths[layer + 1])
            generator = seeds.generator(self.seed, "lds weights", layer)
            drawn = (torch.rand(shape, generator=generator) * 2 - 1) * (6 / sum(shape)) ** 0.5
            weights += [drawn.to(self.features.dtype), self.features.new_zeros(shape[1])]
        return [*weights, *(torch.zeros_like(weight) for _ in range(2) for weight in weights)]


def spread(graph: Graph, root: Tensor, rows: Tensor) -> Tensor:
    """D^(-1/2) (A + I) D^(-1/2) rows, by the graph's root."""
    scaled = root * rows
    return root * (graph.times(scaled) + scaled)


def as_it_is(matrix: Tensor, step: int) -> Tensor:
    """In place of a drawn graph: the matrix itself."""
    return matrix


def draw_graph(probabilities: Tensor, step: int, *, seed: int, rows_at_once: int = ROWS_AT_ONCE) -> Tensor:
    """A symmetric graph without self-loops: every pair is an edge with its probability."""
    generator, size = seeds.generator(seed, "lds graph", step), len(probabilities)
    graph = torch.empty_like(probabilities)
    for start in range(0, size, rows_at_once):
        stop = min(start + rows_at_once, size)
        rows, own, later = slice(start, stop), slice(0, stop - start), slice(stop - start, None)
        drawn = torch.rand(stop - start, size, generator=generator)[:, start:]
        upper = (drawn < probabilities[rows, start:]).to(graph.dtype).triu_(1)
        graph[stop:, rows] = upper[:, later].t()
        graph[rows, start:] = upper
        graph[rows, rows] += upper[:, own].t()
    return graph


def unroll(problem: Problem, probabilities: Tensor, state: list[Tensor], first_step: int) -> list[list[Tensor]]:
    """The states before each step of an epoch, and the one after the last."""
    states = [state]
    for step in range(first_step, first_step + problem.settings.steps):
        leaves = [tensor.detach().requires_grad_() for tensor in states[-1]]
        graph = Graph(problem.sample(probabilities, step))
        moved = problem.inner_step(leaves, graph, step, keep_graph=False)
        states.append([tensor.detach() for tensor in moved])
    return states


def hypergradient(problem: Problem, probabilities: Tensor, states: list[list[Tensor]], first_step: int) -> Tensor:
    """The gradient of the outer loss for the probability of each pair, [n, n] symmetric with a diagonal of 0.

    Only one step at a time is differentiated: it is made again, on the same graph, from the state before it.
    """
    last = first_step + len(states) - 1
    weights = [tensor.detach().requires_grad_() for tensor in states[-1][:4]]
    graph, total = Graph(problem.sample(probabilities, last)), torch.zeros_like(probabilities)
    pulls = graph.pull_back([problem.outer_loss(weights, graph)], weights, None, total)
    pulls += [torch.zeros_like(tensor) for tensor in states[-1][4:]]
    for step in reversed(range(first_step, last)):
        leaves = [tensor.detach().requires_grad_() for tensor in states[step - first_step]]
        graph = Graph(problem.sample(probabilities, step))
        pulls = graph.pull_back(problem.inner_step(leaves, graph, step, keep_graph=True), leaves, pulls, total)
    del graph
    return (total + total.t()).fill_diagonal_(0)


def move(probabilities: Tensor, gradient: Tensor, rate: float) -> None:
    """One projected step of the probabilities, in place."""
    probabilities.sub_(gradient, alpha=rate).clamp_(0, 1)
