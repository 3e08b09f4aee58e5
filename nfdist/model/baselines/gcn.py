"""Stacks of graph convolutions, Â H W + b: GCN, and what was made of it.

SGC is built of the same layer and not of DGL's SGConv, which divides by in-degrees at both ends of an edge: on a
directed graph that is not Â.
"""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from nfdist import seeds
from nfdist.model.baselines.baseline import Baseline
from nfdist.model.baselines.dgl_layers import convolution, joining
from nfdist.model.layers import UndrawnLinear
from nfdist.model.nodeformer import Draw
from nfdist.model.relation import Relation
from nfdist.sparse.adjacency import Adjacency


class GCN(Baseline):
    """`layers` convolutions, the last of which makes the logits."""

    def build(self, num_features: int, num_outputs: int) -> None:
        self.stack(num_features, [self.model.channels] * (self.model.layers - 1) + [num_outputs])
        self.norms = self.make_norms([self.model.channels] * (self.model.layers - 1))

    def stack(self, num_features: int, widths: Sequence[int]) -> None:
        """Make a convolution of each width; its linear map comes before it, the first one's is the input."""
        self.input = UndrawnLinear(num_features, widths[0], bias=False)
        self.linears = nn.ModuleList(UndrawnLinear(*ends, bias=False) for ends in pairwise(widths))
        self.convolutions = nn.ModuleList(convolution(width) for width in widths)

    def logits(self, embedded: Tensor, relations: Sequence[Relation], draw: Draw) -> Tensor:
        graph = self.graph_of(relations[0].adjacency, draw).dgl_graph
        rows: Tensor = self.convolutions[0](graph, embedded)
        for index, (linear, convolve) in enumerate(zip(self.linears, self.convolutions[1:], strict=True)):
            rows = convolve(graph, linear(self.finish(rows, index, draw)))
        return rows

    def graph_of(self, adjacency: Adjacency, draw: Draw) -> Adjacency:
        """The edges that carry messages in a pass."""
        return adjacency


class DropEdge(GCN):
    """A GCN whose training steps each leave out another share of the edges, self-loops excepted.

    An edge is left out by the ids of its ends, the seed and the step, in one direction by itself; degrees are those of
    the edges that stay.
    """

    def graph_of(self, adjacency: Adjacency, draw: Draw) -> Adjacency:
        if not self.training:
            return adjacency
        sources, targets = adjacency.sources.long(), adjacency.targets.long()
        key = seeds.derive(draw.seed, "edges", draw.step)
        kept = seeds.keep_pairs(key, draw.node_ids[sources], draw.node_ids[targets], self.model.edge_dropout)
        return adjacency.only(kept | (sources == targets))


class JKNet(GCN):
    """`layers` convolutions, of whose states the output linear sees all, or their largest entries.

    The first with `jumping_knowledge`, the second without.
    """

    def build(self, num_features: int, num_outputs: int) -> None:
        channels, layers = self.model.channels, self.model.layers
        self.stack(num_features, [channels] * layers)
        self.norms = self.make_norms([channels] * layers)
        self.join = joining("cat" if self.model.jumping_knowledge else "max")
        self.output = UndrawnLinear(channels * (layers if self.model.jumping_knowledge else 1), num_outputs)

    def logits(self, embedded: Tensor, relations: Sequence[Relation], draw: Draw) -> Tensor:
        graph = relations[0].adjacency.dgl_graph
        states = [self.finish(self.convolutions[0](graph, embedded), 0, draw)]
        for index, (linear, convolve) in enumerate(zip(self.linears, self.convolutions[1:], strict=True), start=1):
            states.append(self.finish(convolve(graph, linear(states[-1])), index, draw))
        logits: Tensor = self.output(self.join(states))
        return logits


class SGC(Baseline):
    """Â to the power of `layers`, and one linear map: no hidden state, so no norm, activation or dropout."""

    def build(self, num_features: int, num_outputs: int) -> None:
        self.input = UndrawnLinear(num_features, num_outputs, bias=False)
        last = self.model.layers - 1
        self.convolutions = nn.ModuleList(convolution(num_outputs, bias=hop == last) for hop in range(last + 1))

    def logits(self, embedded: Tensor, relations: Sequence[Relation], draw: Draw) -> Tensor:
        graph = relations[0].adjacency.dgl_graph
        for convolve in self.convolutions:
            embedded = convolve(graph, embedded)
        return embedded
