"""GAT: every node hears its neighbors by weights that it learns, `heads` times over."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from nfdist.model.baselines.baseline import Baseline
from nfdist.model.baselines.dgl_layers import attention
from nfdist.model.layers import UndrawnLinear
from nfdist.model.nodeformer import Draw
from nfdist.model.relation import Relation


class GAT(Baseline):
    """`layers` layers of `heads` heads, each `channels` wide and side by side; the last has one head, the logits."""

    def build(self, num_features: int, num_outputs: int) -> None:
        hidden = self.model.layers - 1
        shapes = [(self.model.channels, self.model.heads)] * hidden + [(num_outputs, 1)]
        widths = [width * heads for width, heads in shapes]
        self.input = UndrawnLinear(num_features, widths[0], bias=False)
        self.linears = nn.ModuleList(UndrawnLinear(*ends, bias=False) for ends in pairwise(widths))
        self.attentions = nn.ModuleList(attention(*shape) for shape in shapes)
        self.norms = self.make_norms(widths[:-1])

    def logits(self, embedded: Tensor, relations: Sequence[Relation], draw: Draw) -> Tensor:
        graph = relations[0].adjacency.dgl_graph
        rows: Tensor = self.attentions[0](graph, embedded).flatten(1)
        for index, (linear, attend) in enumerate(zip(self.linears, self.attentions[1:], strict=True)):
            rows = attend(graph, linear(self.finish(rows, index, draw))).flatten(1)
        return rows
