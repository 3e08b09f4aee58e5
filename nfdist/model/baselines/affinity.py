"""Affinity: a graph learned from rows, as weights between every node and all nodes, or a few anchors among them.

weights   a_ij = s_ij where s_ij = mean over h of cos(w_h * x_i, w_h * x_j) is above a threshold, else 0
all       A rows = D^-1 a rows, D the sums of the rows of a
anchors   A rows = Δ^-1 R Λ^-1 R^T rows, R = a for anchors alone, Δ and Λ the sums of its rows and columns: linear in n
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from nfdist.model.linear import sparse_product
from nfdist.sparse.csr import sparse_csr

UNEVEN, DISCONNECTED, CROWDED = 0.5, 0.01, 0.3  # the weights of the terms of `roughness`
_LEAST = 1e-12  # of lengths and sums: a row of zeros is like nobody, not even itself, and gets nothing


@dataclass(frozen=True)
class Affinity:
    """Weights [n, s] of n nodes for s anchors, or for all of them where s = n and they are not `anchored`."""

    weights: Tensor
    anchored: bool

    @staticmethod
    def learn(rows: Tensor, others: Tensor, scales: Tensor, threshold: float, *, anchored: bool) -> "Affinity":
        """The affinity of rows [n, f], which may be sparse, for dense anchors [s, f], or for the same rows [n, f]."""
        similarity = similarities(rows, others, scales)
        return Affinity(F.threshold(similarity, threshold, 0.0), anchored)

    def spread(self, rows: Tensor) -> Tensor:
        """What every node gets of rows [n, c]: a weighted mean over all nodes."""
        return _means(self.weights, _means(self.weights.t(), rows) if self.anchored else rows)

    def graph(self) -> Tensor:
        """The symmetric graph among all nodes [n, n], or R^T Δ^-1 R among the anchors [s, s]."""
        return (self.weights / _sums(self.weights)).t() @ self.weights if self.anchored else self.weights

    def converged(self, before: "Affinity", first: "Affinity", tolerance: float) -> bool:
        """Whether the weights have changed by less than a share of the first ones, in squares."""
        with torch.no_grad():
            change = (self.weights - before.weights).square_().sum()
            return bool(change < tolerance * torch.linalg.vector_norm(first.weights).square())


def similarities(rows: Tensor, anchors: Tensor, scales: Tensor) -> Tensor:
    """The cosine of each row [n, f] to each anchor [s, f] with the channels scaled [h, f], as a mean over h: [n, s]."""
    if rows.layout != torch.sparse_csr:
        units = _units(rows, scales)
        return units / len(scales) @ (units if anchors is rows else _units(anchors, scales)).t()
    total, table = scales.new_zeros(len(rows), len(anchors)), anchors.t().contiguous()
    squares = sparse_csr(rows.crow_indices(), rows.col_indices(), rows.values().square(), (len(rows), rows.shape[1]))
    table_squares = table.square()
    for weights in scales.square():
        lengths = _roots(sparse_product(squares, weights[:, None]))
        total = total + sparse_product(rows, weights[:, None] * table) / lengths / _roots(weights @ table_squares)
    return total / len(scales)


def square_distances(rows: Tensor, points: Tensor) -> Tensor:
    """|x_i - x_j|^2 of every pair of points [k, f], which are the rows too, but these may be sparse: [k, k]."""
    squares = points.square().sum(1)
    products = sparse_product(rows, points.t()) if rows.layout == torch.sparse_csr else rows @ points.t()
    return (squares[:, None] + squares).sub_(products, alpha=2).clamp_(min=0)


def roughness(graph: Tensor, distances: Tensor) -> Tensor:
    """What a symmetric graph [k, k] of points with such square distances [k, k] is asked to keep low.

    Mean over pairs of a_ij |x_i - x_j|^2 / 2, minus the mean logarithm of the degrees, and mean over pairs of a_ij^2.
    """
    weights = graph.flatten()
    length: Tensor = torch.linalg.vector_norm(weights)
    uneven, crowded = weights @ distances.flatten() / 2, length.square()
    disconnected = -graph.sum(1).clamp(min=_LEAST).log().mean()
    return (UNEVEN * uneven + CROWDED * crowded) / graph.numel() + DISCONNECTED * disconnected


def _means(weights: Tensor, rows: Tensor) -> Tensor:
    padded = F.pad(rows, (0, -rows.shape[1] % 16))  # a gradient of few columns takes several times as long on a CPU
    return (weights @ padded)[:, : rows.shape[1]] / _sums(weights)


def _sums(weights: Tensor) -> Tensor:
    return weights.sum(1, keepdim=True).clamp(min=_LEAST)


def _roots(squares: Tensor) -> Tensor:
    """Lengths, by their squares."""
    return squares.clamp(min=_LEAST**2).sqrt()


def _units(rows: Tensor, scales: Tensor) -> Tensor:
    """Rows scaled by each head and cut to length 1, the heads side by side: [n, h x f]."""
    return F.normalize(torch.einsum("nf,hf->nhf", rows, scales), dim=2).flatten(1)
