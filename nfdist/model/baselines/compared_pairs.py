"""Pairs of nodes that a model may join, the edges of a graph or all there are, and weights by their rows' differences.

score     a · |h_t - h_s| of a pair, and |h_t - h_s|^2 beside it: some pairs at a time, forward and backward
weights   of a target's pairs a softmax of what the scores became
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.spmm import propagate

PAIRS_AT_ONCE = 1 << 14  # of which the differences of all channels are there


class Pairs(Protocol):
    """So many pairs (t, s), in order of t."""

    @property
    def count(self) -> int: ...

    def pieces(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Some pairs at a time: which, their targets and their sources."""
        ...

    def softmax(self, scores: Tensor) -> Tensor:
        """Weights [pairs] of scores [pairs], which sum to 1 for every target."""
        ...

    def spread(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Σ over a target's pairs of weight x row of the source, [n, c]."""
        ...


@dataclass(frozen=True)
class EdgePairs:
    """The edges of a graph in which every node has its loop."""

    graph: Adjacency

    @property
    def count(self) -> int:
        return self.graph.num_edges

    def pieces(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        targets, sources = self.graph.targets.long(), self.graph.sources.long()
        for start in range(0, self.count, PAIRS_AT_ONCE):
            part = slice(start, min(start + PAIRS_AT_ONCE, self.count))
            yield part, targets[part], sources[part]

    def softmax(self, scores: Tensor) -> Tensor:
        targets, none = self.graph.targets.long(), scores.new_zeros(self.graph.num_nodes)
        peaks = none.scatter_reduce(0, targets, scores.detach(), "amax", include_self=False)
        shares = (scores - peaks[targets]).exp()
        return shares / none.index_add(0, targets, shares)[targets]

    def spread(self, weights: Tensor, rows: Tensor) -> Tensor:
        return propagate(self.graph, rows, weights)


@dataclass(frozen=True)
class AllPairs:
    """Every pair of n nodes, each with itself, too."""

    num_nodes: int
    device: torch.device

    @property
    def count(self) -> int:
        return self.num_nodes**2

    def pieces(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        everyone, at_once = (
            torch.arange(self.num_nodes, device=self.device),
            max(1, PAIRS_AT_ONCE // max(1, self.num_nodes)),
        )
        for start in range(0, self.num_nodes, at_once):
            targets = everyone[start : start + at_once]
            part = slice(start * self.num_nodes, (start + len(targets)) * self.num_nodes)
            yield part, targets.repeat_interleave(self.num_nodes), everyone.repeat(len(targets))

    def softmax(self, scores: Tensor) -> Tensor:
        return scores.view(self.num_nodes, self.num_nodes).softmax(1).view(-1)

    def spread(self, weights: Tensor, rows: Tensor) -> Tensor:
        return weights.view(self.num_nodes, self.num_nodes) @ rows


def compare(rows: Tensor, channel_weights: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """a · |h_t - h_s| and |h_t - h_s|^2 of every pair [pairs], of rows h [n, c] and weights a [c]."""
    scores, distances = _Compared.apply(rows, channel_weights, pairs)
    return scores, distances


class _Compared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, channel_weights: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
        scores, distances = (rows.new_empty(pairs.count) for _ in range(2))
        for part, targets, sources in pairs.pieces():
            differences = rows[targets] - rows[sources]
            distances[part] = differences.square().sum(1)
            scores[part] = differences.abs_() @ channel_weights
        ctx.save_for_backward(rows, channel_weights)
        ctx.pairs = pairs
        return scores, distances

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, score_grad: Tensor, distance_grad: Tensor) -> tuple[Tensor, Tensor, None]:
        rows, channel_weights = ctx.saved_tensors
        row_grad, weight_grad = torch.zeros_like(rows), torch.zeros_like(channel_weights)
        for part, targets, sources in ctx.pairs.pieces():
            differences = rows[targets] - rows[sources]
            of_scores = score_grad[part, None]
            weight_grad += differences.abs().t() @ score_grad[part]
            own = differences.sign() * (of_scores * channel_weights) + differences * (2 * distance_grad[part, None])
            row_grad.index_add_(0, targets, own).index_add_(0, sources, own, alpha=-1)
        return row_grad, weight_grad, None
