"""MLP: `layers` linear maps, which know nothing of the graph."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from nfdist.graph.neighbors import Propagator
from nfdist.model.baselines.baseline import Baseline
from nfdist.model.linear import UndrawnLinear
from nfdist.model.protocol import Draw


class MLP(Baseline):
    """Every node by itself."""

    divides = True
    orders = range(2)
    heeds_weights = False
    needs_graph = False
    crosses_ranks = True

    def make_layers(self, num_features: int, num_outputs: int) -> None:
        widths = [self.model.channels] * (self.model.layers - 1) + [num_outputs]
        self.input = self.make_input(num_features, widths[0])
        self.linears = nn.ModuleList(UndrawnLinear(*ends) for ends in pairwise(widths))
        self.norms = self.make_norms(widths[:-1])

    def logits(self, embedded: Tensor, relations: Sequence[Propagator], draw: Draw) -> Tensor:
        for index, linear in enumerate(self.linears):
            embedded = linear(self.activate(embedded, index, draw))
        return embedded
