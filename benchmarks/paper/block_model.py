"""An assortative mixed-membership stochastic block model of a graph (Gopalan et al., 2012), by likely parameters.

π [n, k]      how much of a node belongs to each community; φ [n, k] are its counts, π = φ / Σ φ
β [k]         how likely two members of a community are linked; θ [k, 2] counts pairs without and with, β = θ₁ / Σ θ
p_ab = Σ_k π_ak π_bk β_k + (1 - Σ_k π_ak π_bk) δ      the probability of an edge

Priors of φ and θ are Gamma(1, ρ). Steps of gradient ascent are scaled by the parameters themselves, and what falls
below zero is turned up, as in BGCN (Zhang et al., 2019). Its code has gradients of samples of pairs, here they are of
all pairs.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

DELTA = 1e-4  # δ, the probability of an edge between communities
PRIOR_RATE = 1e-3  # ρ
ITERATIONS = 200
FIRST_STEP = 1024 + 10_000  # the t-th step is (this + t)^(-1/2) / 2
ROWS_AT_ONCE = 256
_LEAST = 1e-30


@dataclass(frozen=True)
class BlockModel:
    """The counts φ [n, k] and θ [k, 2]."""

    memberships: Tensor
    strengths: Tensor

    @staticmethod
    def start(shares: Tensor, graph: Tensor) -> "BlockModel":
        """From the probabilities of classes [n, k]: θ counts pairs of nodes whose likeliest class is the same."""
        num_classes = shares.shape[1]
        members = F.one_hot(shares.argmax(1), num_classes).to(shares.dtype)
        sizes, linked = members.sum(0), (members * (graph @ members)).sum(0) / 2
        pairs = sizes * (sizes - 1) / 2
        return BlockModel(num_classes * shares, torch.stack([pairs - linked, linked], 1) + 1)

    def shares(self) -> Tensor:
        """π [n, k]."""
        return self.memberships / self.memberships.sum(1, keepdim=True)

    def densities(self) -> Tensor:
        """β [k]."""
        return self.strengths[:, 1] / self.strengths.sum(1)

    def infer(self, graph: Tensor, iterations: int = ITERATIONS) -> "BlockModel":
        """After so many steps up the posterior of a symmetric graph [n, n] of zeros and ones."""
        model = self
        for number in range(iterations):
            model = model.step(graph, 0.5 * (FIRST_STEP + number) ** -0.5)
        return model

    def step(self, graph: Tensor, size: float) -> "BlockModel":
        counts = self.memberships, self.strengths
        return BlockModel(
            *((each + size * each * slope).abs_() for each, slope in zip(counts, self.gradient(graph), strict=True))
        )

    def gradient(self, graph: Tensor, rows_at_once: int = ROWS_AT_ONCE) -> tuple[Tensor, Tensor]:
        """The gradient of the log posterior for φ [n, k] and θ [k, 2]."""
        shares, densities = self.shares(), self.densities()
        # Σ_b of the slope of log p(y_ab) for p_ab, times π_b: [n, k]
        pulls = torch.empty_like(shares)
        for start in range(0, len(shares), rows_at_once):
            rows = slice(start, start + rows_at_once)
            slopes = _slopes(shares[rows] @ (shares * (densities - DELTA)).t() + DELTA, graph[rows])
            slopes.diagonal(start).zero_()  # a node is no pair with itself
            pulls[rows] = slopes @ shares
        of_shares, of_densities = pulls * (densities - DELTA), (shares * pulls).sum(0) / 2
        inward = of_shares - (shares * of_shares).sum(1, keepdim=True)
        of_memberships = inward / self.memberships.sum(1, keepdim=True) - PRIOR_RATE
        totals = self.strengths.sum(1)
        of_strengths = torch.stack([-self.strengths[:, 1], self.strengths[:, 0]], 1) / totals[:, None] ** 2
        return of_memberships, of_strengths * of_densities[:, None] - PRIOR_RATE

    def certain(self) -> "BlockModel":
        """The same with all of a node in its likeliest community."""
        members = F.one_hot(self.memberships.argmax(1), self.memberships.shape[1])
        return BlockModel(members.to(self.memberships.dtype), self.strengths)

    def probabilities(self) -> Tensor:
        """p [n, n] of all pairs, 0 for a node with itself."""
        shares = self.shares()
        return (shares @ (shares * (self.densities() - DELTA)).t()).add_(DELTA).fill_diagonal_(0)


def _slopes(probabilities: Tensor, linked: Tensor) -> Tensor:
    """The derivatives of log p for pairs with an edge, and of log(1 - p) for the others."""
    return torch.where(linked > 0, probabilities.clamp(min=_LEAST), probabilities - 1).reciprocal_()
