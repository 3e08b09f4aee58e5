"""Stacks of graph convolutions, Â H W + b: GCN, and what was made of it."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from nfdist import seeds
from nfdist.config import ModelConfig
from nfdist.errors import ConfigError
from nfdist.graph.neighbors import Propagator
from nfdist.graph.relation import Relation
from nfdist.model.baselines.baseline import Baseline, Convolution
from nfdist.model.linear import UndrawnLinear
from nfdist.model.protocol import Draw


class GCN(Baseline):
    """`layers` convolutions, the last of which makes the logits."""

    divides = True

    def make_layers(self, num_features: int, num_outputs: int) -> None:
        self.stack(num_features, [self.model.channels] * (self.model.layers - 1) + [num_outputs])
        self.norms = self.make_norms([self.model.channels] * (self.model.layers - 1))

    def stack(self, num_features: int, widths: Sequence[int]) -> None:
        """Make a convolution of each width; its linear map comes before it, the first one's is the input."""
        self.input = self.make_input(num_features, widths[0], bias=False)
        self.linears = nn.ModuleList(UndrawnLinear(*ends, bias=False) for ends in pairwise(widths))
        self.convolutions = nn.ModuleList(Convolution(width) for width in widths)

    def logits(self, embedded: Tensor, relations: Sequence[Propagator], draw: Draw) -> Tensor:
        relation = self.messages(relations[0], draw)
        rows: Tensor = self.convolutions[0](relation, embedded)
        for index, (linear, convolve) in enumerate(zip(self.linears, self.convolutions[1:], strict=True)):
            rows = convolve(relation, linear(self.activate(rows, index, draw)))
        return rows

    def messages(self, relation: Propagator, draw: Draw) -> Propagator:
        """The edges that carry messages in a pass, and their weights."""
        return relation


class DropEdge(GCN):
    """A GCN whose training steps each leave out another share of the edges, self-loops excepted.

    An edge is left out by the ids of its ends, the seed and the step, in one direction by itself; degrees are those of
    the edges that stay.
    """

    @classmethod
    def check_settings(cls, model: ModelConfig) -> None:
        if model.dropedge.edge_dropout == 0:
            raise ConfigError("model.dropedge.edge_dropout must be above 0 for dropedge, got 0.0: or use gcn")

    def messages(self, relation: Propagator, draw: Draw) -> Propagator:
        if not self.training:
            return relation
        assert isinstance(relation, Relation)
        return self.sampled(relation, draw)

    def sampled(self, relation: Relation, draw: Draw) -> Relation:
        """What is left of a relation in a training step."""
        adjacency = relation.adjacency
        sources, targets = adjacency.sources.long(), adjacency.targets.long()
        key = seeds.derive(draw.seed, "edges", draw.step)
        kept = seeds.keep_pairs(key, draw.node_ids[sources], draw.node_ids[targets], self.model.dropedge.edge_dropout)
        return Relation.build(adjacency.only(kept | (sources == targets)), dtype=relation.edge_weights.dtype)


class JKNet(GCN):
    """`layers` convolutions, of whose states the output linear sees all, or their largest entries.

    The first with `jumping_knowledge`, the second without.
    """

    def make_layers(self, num_features: int, num_outputs: int) -> None:
        channels, layers = self.model.channels, self.model.layers
        self.stack(num_features, [channels] * layers)
        self.norms = self.make_norms([channels] * layers)
        self.output = UndrawnLinear(channels * (layers if self.model.jumping_knowledge else 1), num_outputs)

    def logits(self, embedded: Tensor, relations: Sequence[Propagator], draw: Draw) -> Tensor:
        states = [self.activate(self.convolutions[0](relations[0], embedded), 0, draw)]
        for index, (linear, convolve) in enumerate(zip(self.linears, self.convolutions[1:], strict=True), start=1):
            states.append(self.activate(convolve(relations[0], linear(states[-1])), index, draw))
        joined = torch.cat(states, 1) if self.model.jumping_knowledge else torch.stack(states).amax(0)
        logits: Tensor = self.output(joined)
        return logits


class SGC(Baseline):
    """Â to the power of `layers`, and one linear map: no hidden state, so no norm, activation or dropout."""

    divides = True

    def make_layers(self, num_features: int, num_outputs: int) -> None:
        self.input = self.make_input(num_features, num_outputs, bias=False)
        last = self.model.layers - 1
        self.convolutions = nn.ModuleList(Convolution(num_outputs, bias=hop == last) for hop in range(last + 1))

    def logits(self, embedded: Tensor, relations: Sequence[Propagator], draw: Draw) -> Tensor:
        for convolve in self.convolutions:
            embedded = convolve(relations[0], embedded)
        return embedded
