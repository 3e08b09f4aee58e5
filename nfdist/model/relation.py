"""Relations: who hears from whom directly, over paths of up to a given order, and with what weight.

Â_j: the pattern of (A + I)^j, each entry s -> t weighted 1 / sqrt(d_in(t) d_out(s))
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.sparse.adjacency import Adjacency


@dataclass(frozen=True)
class Relation:
    """One Â_j, with the weight of every edge and their sum [n] at every target.

    Its targets are the n nodes of a batch; its sources are the same nodes, or these and a halo of others after them.
    """

    adjacency: Adjacency
    edge_weights: Tensor
    total_weights: Tensor

    @staticmethod
    def build(
        pattern: Adjacency,
        normalize: bool = True,
        dtype: torch.dtype = torch.float32,
        out_degrees: Tensor | None = None,
    ) -> "Relation":
        """The relation of a pattern; `out_degrees` where its sources have edges to targets that are not here."""
        weights = torch.ones(pattern.num_edges, dtype=dtype)
        if normalize:
            out_degrees = pattern.out_degrees if out_degrees is None else out_degrees
            root_in, root_out = pattern.in_degrees.to(dtype).rsqrt(), out_degrees.to(dtype).rsqrt()
            weights = root_in.index_select(0, pattern.targets) * root_out.index_select(0, pattern.sources)
        totals = torch.zeros(pattern.num_nodes, dtype=dtype).index_add_(0, pattern.targets, weights)
        pattern.turned  # noqa: B018  (made here, with the batch, and not in the step)
        return Relation(pattern, weights, totals)

    @cached_property
    def turned_weights(self) -> Tensor:
        """The weights in the order of the turned edges."""
        return self.edge_weights.index_select(0, self.adjacency.turned[1])

    def to(self, device: torch.device | str) -> "Relation":
        return Relation(self.adjacency.to(device), self.edge_weights.to(device), self.total_weights.to(device))


def build_relations(
    graph: Adjacency, order: int, normalize: bool = True, dtype: torch.dtype = torch.float32
) -> list[Relation]:
    """Â_1 .. Â_order of a whole graph: costly for order 2 and up, so build them once."""
    return [Relation.build(graph.power(hop), normalize, dtype) for hop in range(1, order + 1)]


def relate(
    rows: Tensor, weights: Tensor, biases: Tensor, relations: Sequence[Relation], *, residual: bool = False
) -> Tensor:
    """Σ_j Â_j (rows weights[j]ᵀ + biases[j]), plus the targets' rows themselves if residual: [n, c]; differentiable.

    Rows are [sources, d], the first n of them the targets'; weights are [j, c, d] and biases [j, c], one a relation.
    """
    out: Tensor = _Relate.apply(rows, weights, biases, relations, residual)
    return out


class _Relate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weights: Tensor, biases: Tensor, relations: Sequence[Relation], residual: bool
    ) -> Tensor:
        ctx.save_for_backward(rows, weights)
        ctx.relations, ctx.residual = relations, residual
        totals = torch.stack([relation.total_weights for relation in relations], 1)
        out = torch.addmm(rows[: len(totals)], totals, biases) if residual else totals @ biases
        for relation, weight in zip(relations, weights, strict=True):
            out.addmm_(relation.adjacency.sum_in(rows, relation.edge_weights), weight.t())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, weights = ctx.saved_tensors
        grad_rows = torch.zeros_like(rows)
        if ctx.residual:
            grad_rows[: len(grad)] = grad
        grad_weights = torch.empty_like(weights)
        totals = torch.stack([relation.total_weights for relation in ctx.relations], 1)
        for hop, relation in enumerate(ctx.relations):
            returned = relation.adjacency.turned[0].sum_in(grad, relation.turned_weights)
            grad_rows.addmm_(returned, weights[hop])
            torch.mm(returned.t(), rows, out=grad_weights[hop])  # gradᵀ Â rows, without keeping Â rows
        return grad_rows, grad_weights, totals.t() @ grad, None, None
