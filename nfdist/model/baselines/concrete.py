"""Graphs of n nodes drawn from relaxed Bernoulli variables, one of each pair, and what a draw costs.

logit   l = p + θ, p that of the pair's prior and θ its shift: shifts are all that is learned
draw    a = σ(b), b = (l + ε) / τ, with ε logistic noise: a binary concrete variable; pairs have no direction
cost    log q(b) - log p(b), of the two logistic densities that b has: around l / τ with scale 1 / τ, and around p / τ'
        with scale 1 / τ', τ' the temperature of the prior. Its mean is the divergence of both graphs.

Shifts are those of all pairs of the graph's node ids, i > j at i (i - 1) / 2 + j. Noise belongs to both ids of a pair.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.seeds import hash_ids
from nfdist.sparse.adjacency import Adjacency

PAIRS_AT_ONCE = 1 << 19  # numbers of a block, which stay in a cache


def num_pairs(num_nodes: int) -> int:
    return num_nodes * (num_nodes - 1) // 2


@dataclass(frozen=True)
class EdgePrior:
    """How likely pairs are edges before anything is learned: those that a graph has, and all others."""

    graph: Adjacency
    edge: float
    other: float
    temperature: float

    @cached_property
    def edges(self) -> tuple[Tensor, Tensor]:
        """The rows of every pair with an edge in any direction, the larger one first; by that one."""
        targets, sources = self.graph.targets.long(), self.graph.sources.long()
        larger, smaller = torch.maximum(targets, sources), torch.minimum(targets, sources)
        order = larger.argsort()
        order = order[(larger != smaller)[order]]
        return larger[order], smaller[order]

    def logits(self, rows: slice, like: Tensor) -> Tensor:
        """p of some rows and all rows up to their last."""
        larger, smaller = self.edges
        first, last = torch.searchsorted(larger, torch.tensor([rows.start, rows.stop], device=larger.device)).tolist()
        logits = like.new_full((rows.stop - rows.start, rows.stop), _logit(self.other))
        logits[larger[first:last] - rows.start, smaller[first:last]] = _logit(self.edge)
        return logits


@dataclass(frozen=True)
class Posterior:
    """What draws are made with beside the shifts: the prior, the nodes' ids, the temperature."""

    prior: EdgePrior
    node_ids: Tensor
    temperature: float

    def draw(self, shifts: Tensor, key: int) -> tuple[Tensor, Tensor]:
        """A graph [n, n] by the noise of a key, and its cost."""
        graph, cost = _Drawn.apply(shifts, self, key)
        return graph, cost

    @property
    def rate(self) -> float:
        """By what the logit of the draw in the prior grows with that of the posterior."""
        return self.prior.temperature / self.temperature

    def blocks(self, shifts: Tensor, key: int) -> Iterator["_Block"]:
        """All pairs of rows, some rows with all that come before them at a time."""
        count, start = len(self.node_ids), 0
        while start < count:
            rows = slice(start, min(count, start + max(1, PAIRS_AT_ONCE // count)))
            ids = self.node_ids[: rows.stop]
            larger, smaller = torch.maximum(ids[rows, None], ids), torch.minimum(ids[rows, None], ids)
            noise = logistic(key, larger, smaller, shifts.dtype)
            places = (larger * (larger - 1) // 2).add_(smaller).clamp_(max=len(shifts) - 1)  # of loops: anything
            prior = self.prior.logits(rows, shifts)
            logits = shifts.detach()[places].add_(prior).add_(noise)
            yield _Block(rows, places, noise, logits, logits * self.rate - prior)
            start = rows.stop


@dataclass(frozen=True)
class _Block:
    """Of pairs of some rows with all up to their last: l + ε, and τ' b - p; what is no pair is to be cut off."""

    rows: slice
    places: Tensor
    noise: Tensor
    logits: Tensor
    in_prior: Tensor

    def cut(self, values: Tensor) -> Tensor:
        """Only pairs of a row with one before it."""
        return values.tril_(self.rows.start - 1)


def logistic(key: int, larger: Tensor, smaller: Tensor, dtype: torch.dtype) -> Tensor:
    """Logistic noise of pairs of node ids: by the key and both ids, the larger one first, alone.

    One half of a hash is the tail, with fine steps where the largest noise comes from, and one more bit the sign.
    """
    bits = hash_ids(hash_ids(torch.full((), key, device=larger.device), larger), smaller)
    negative = bits < 0
    tail = (bits & 0x7FFFFFFF).to(dtype).add_(0.5).mul_(2.0**-32)  # below one half
    noise = torch.log1p(-tail).sub_(tail.log_())
    return torch.where(negative, -noise, noise)


class _Drawn(torch.autograd.Function):
    """A draw, of which only the graph is kept: its noise is made again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, shifts: Tensor, posterior: Posterior, key: int) -> tuple[Tensor, Tensor]:
        count = len(posterior.node_ids)
        graph, cost = shifts.new_zeros(count, count), shifts.new_zeros((), dtype=torch.float64)
        for block in posterior.blocks(shifts, key):
            rows = block.rows
            drawn = block.cut(torch.sigmoid(block.logits / posterior.temperature))
            graph[rows, : rows.stop] = drawn
            graph[: rows.stop, rows] += drawn.t()
            cost += block.cut(_twice_softened(block.in_prior) - _twice_softened(block.noise)).sum(dtype=torch.float64)
        ctx.posterior, ctx.key = posterior, key
        ctx.save_for_backward(shifts, graph)
        scale = math.log(posterior.temperature / posterior.prior.temperature)
        return graph, (cost + scale * num_pairs(count)).to(shifts.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, cost_grad: Tensor) -> tuple[Tensor, None, None]:
        (shifts, graph), posterior = ctx.saved_tensors, ctx.posterior
        shift_grad = torch.zeros_like(shifts)
        for block in posterior.blocks(shifts, ctx.key):
            rows, before = block.rows, slice(0, block.rows.stop)
            drawn = graph[rows, before]
            own = (grad[rows, before] + grad[before, rows].t()) * (drawn * (1 - drawn) / posterior.temperature)
            own += cost_grad * posterior.rate * torch.tanh(block.in_prior / 2)
            shift_grad.index_add_(0, block.places.flatten(), block.cut(own).flatten())
        return shift_grad, None, None


def _twice_softened(values: Tensor) -> Tensor:
    """x + 2 log(1 + e^-x), minus the logarithm of the standard logistic density."""
    return values + 2 * F.softplus(-values)


def _logit(probability: float) -> float:
    return math.log(probability) - math.log1p(-probability)
