"""VGCN (Elinas et al., 2020): graph convolutions over graphs drawn from a learned distribution around the input graph.

posterior   of every pair of nodes the probability that they are joined: a free number each, which starts at the prior
prior       one probability for the pairs that the input graph joins, another for all others
loss        that of the labels, as a mean over draws, and weight x (log posterior - log prior) of the draws a node
answer      the mean of the class probabilities over draws that follow the seed

Draws are relaxed (concrete.py) in training and evaluation alike.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from nfdist import seeds
from nfdist.config import Config
from nfdist.errors import ConfigError
from nfdist.graph.relation import Relation
from nfdist.model.baselines.concrete import EdgePrior, Posterior, num_pairs
from nfdist.model.baselines.gcn import GCN
from nfdist.model.protocol import Draw, Output

SHIFTS = "shifts"


@dataclass(frozen=True)
class DrawnGraph:
    """D^(-1/2) (A + I) D^(-1/2) of a symmetric graph without loops, [n, n]."""

    matrix: Tensor

    @cached_property
    def root(self) -> Tensor:
        return (self.matrix.sum(1, keepdim=True) + 1).rsqrt()

    def propagate(self, rows: Tensor) -> Tensor:
        scaled = self.root * rows
        return self.root * (self.matrix @ scaled + scaled)


class VGCN(GCN):
    """A GCN of `layers` convolutions, and a number for each pair of the nodes that it was built for."""

    has_auxiliary_loss = True
    heeds_weights = False
    divides = False
    inductive = False
    one_label = True
    weighs_pairs = True
    undecayed: tuple[str, ...] = (SHIFTS,)

    def make_layers(self, num_features: int, num_outputs: int) -> None:
        super().make_layers(num_features, num_outputs)
        self.shifts = nn.Parameter(torch.zeros(num_pairs(self.num_nodes)))

    @staticmethod
    def nodes_of(weights: Mapping[str, Tensor]) -> int:
        return (1 + math.isqrt(1 + 8 * len(weights[SHIFTS]))) // 2

    @staticmethod
    def pair_numbers(config: Config, *, training: bool) -> float:
        """The draws of a step with gradients of one of them, or one draw."""
        return config.model.vgcn.samples + 3 if training else 1.5

    def check(self, features: Tensor, relations: Sequence[Relation], draw: Draw) -> None:
        super().check(features, relations, draw)
        if len(draw.node_ids) and int(draw.node_ids.max()) >= self.num_nodes:
            raise ConfigError(f"the model is of {self.num_nodes} nodes, got node {int(draw.node_ids.max())}")

    def answer(
        self, features: Tensor, embedded: Tensor, relations: Sequence[Relation], draw: Draw, scale: float
    ) -> Output:
        """Logits of every draw in training, and in evaluation the logarithms of mean probabilities."""
        config, count = self.model.vgcn, len(features)
        prior = EdgePrior(relations[0].adjacency, config.edge_prior, config.other_prior, config.prior_temperature)
        posterior, logits, costs = (
            Posterior(prior, draw.node_ids, config.draw_temperature),
            list[Tensor](),
            list[Tensor](),
        )
        for sample in range(config.samples if self.training else config.eval_samples):
            own = replace(draw, seed=seeds.derive(draw.seed, "draw", sample))
            graph, cost = posterior.draw(
                self.shifts, seeds.derive(own.seed, "graph", draw.step if self.training else "evaluation")
            )
            logits.append(self.logits(embedded, [DrawnGraph(graph)], own))
            costs.append(cost)
        if not self.training:
            return Output(log_mean_probabilities(logits), None)
        loss = scale * torch.stack(costs).mean() / max(count, 1) if scale else None
        return Output(logits[-1], loss, tuple(logits[:-1]))


def log_mean_probabilities(logits: Sequence[Tensor]) -> Tensor:
    """The logarithms of the mean of several answers' class probabilities, without those of one answer of all."""
    mean = torch.stack([rows.log_softmax(1) for rows in logits]).logsumexp(0)
    return mean - mean.mean(1, keepdim=True)
