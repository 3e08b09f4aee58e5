"""GAT: every node gets messages of its neighbors by weights that it learns, `heads` times over. The layer is DGL's."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from nfdist.devices import is_gpu
from nfdist.errors import ConfigError
from nfdist.graph.neighbors import Propagator
from nfdist.graph.relation import Relation
from nfdist.model.baselines.baseline import Baseline
from nfdist.model.linear import UndrawnLinear
from nfdist.model.protocol import Draw
from nfdist.sparse.dgl_door import dgl_layers


class GAT(Baseline):
    """`layers` layers of `heads` heads, each `channels` wide and side by side; the last has one head, the logits."""

    heeds_weights = False
    inductive = False
    runs_on_gpu = False

    def make_layers(self, num_features: int, num_outputs: int) -> None:
        hidden = self.model.layers - 1
        shapes = [(self.model.channels, self.model.heads)] * hidden + [(num_outputs, 1)]
        widths = [width * heads for width, heads in shapes]
        self.input = self.make_input(num_features, widths[0], bias=False)
        self.linears = nn.ModuleList(UndrawnLinear(*ends, bias=False) for ends in pairwise(widths))
        self.attentions = nn.ModuleList(dgl_attention(*shape) for shape in shapes)
        self.norms = self.make_norms(widths[:-1])

    def check(self, features: Tensor, relations: Sequence[Relation], draw: Draw) -> None:
        super().check(features, relations, draw)
        if is_gpu(features.device):
            raise ConfigError("model.name = gat uses a layer of DGL, which has no GPU code here: take the CPU")

    def logits(self, embedded: Tensor, relations: Sequence[Propagator], draw: Draw) -> Tensor:
        relation = relations[0]
        assert isinstance(relation, Relation)
        graph = relation.adjacency.dgl_graph
        rows: Tensor = self.attentions[0](graph, embedded).flatten(1)
        for index, (linear, attend) in enumerate(zip(self.linears, self.attentions[1:], strict=True)):
            rows = attend(graph, linear(self.activate(rows, index, draw))).flatten(1)
        return rows


def dgl_attention(width: int, heads: int) -> Any:
    """DGL's GATConv behind its linear map: (graph, rows [n, h x width]) -> [n, h, width], weights by softmax."""
    with torch.random.fork_rng(devices=[]):  # DGL draws weights, which are drawn again by name
        layer = dgl_layers().GATConv(width, width, heads)
    layer.fc = nn.Identity()
    return layer
