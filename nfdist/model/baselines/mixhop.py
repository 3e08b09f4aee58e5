"""MixHop: every layer sees a node itself, its neighbors and their neighbors, by a linear map each."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nfdist.graph.neighbors import Propagator
from nfdist.model.baselines.baseline import Baseline
from nfdist.model.linear import UndrawnLinear
from nfdist.model.protocol import Draw

POWERS = 3  # 0, 1 and 2


class MixHop(Baseline):
    """`layers` layers of [H W_0 | Â H W_1 | Â² H W_2] + b, each power `channels` wide, and an output linear."""

    divides = True

    def make_layers(self, num_features: int, num_outputs: int) -> None:
        layers, width = self.model.layers, POWERS * self.model.channels
        self.input = self.make_input(num_features, width, bias=False)
        self.linears = nn.ModuleList(UndrawnLinear(width, width, bias=False) for _ in range(layers - 1))
        self.biases = nn.ParameterList(torch.zeros(width) for _ in range(layers))
        self.norms = self.make_norms([width] * layers)
        self.output = UndrawnLinear(width, num_outputs)

    def logits(self, embedded: Tensor, relations: Sequence[Propagator], draw: Draw) -> Tensor:
        hidden = self.activate(self._mixed(embedded, relations[0]) + self.biases[0], 0, draw)
        for index, linear in enumerate(self.linears, start=1):
            hidden = self.activate(self._mixed(linear(hidden), relations[0]) + self.biases[index], index, draw)
        logits: Tensor = self.output(hidden)
        return logits

    def _mixed(self, rows: Tensor, relation: Propagator) -> Tensor:
        """Rows [n, 3 x c], a third of them as they are, a third after one hop and a third after two."""
        channels = self.model.channels
        once = relation.propagate(rows[:, channels:])
        twice = relation.propagate(once[:, channels:])
        return torch.cat([rows[:, :channels], once[:, :channels], twice], 1)
