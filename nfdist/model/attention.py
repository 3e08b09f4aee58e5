"""One layer of NodeFormer: every node hears every other, and its neighbors once more."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from nfdist.attention.attend import attend_to
from nfdist.attention.edges import edge_key_logs, edge_log_likelihood
from nfdist.attention.kernel import Kernel, KeyFeatures
from nfdist.attention.share import share
from nfdist.attention.summary import KeySummary, summarize
from nfdist.model.layers import Finish, UndrawnLinear, key_features, project, query_map, settle
from nfdist.model.relation import Relation, relate
from nfdist.world import World

# What the gate of a relation starts from; "none" stays closed.
GATES = {"sigmoid": 0.1, "identity": 1.0, "none": 0.0}


class AttentionLayer(nn.Module):
    """All-pair attention plus the relational bias, joined over the heads by an output linear.

    The value of a node is a linear map of its hidden state, and so is what becomes of it after it was heard. Hence the
    values are never formed: attention and relations average hidden states, and the maps, folded into one a head, are
    applied to a summary's means and once to each relation's sums.
    """

    def __init__(self, channels: int, heads: int, order: int, gate: str, residual: bool) -> None:
        super().__init__()
        self.heads, self.gate, self.residual = heads, gate, residual
        self.query, self.key, self.value = (UndrawnLinear(channels, heads * channels) for _ in range(3))
        self.output = UndrawnLinear(heads * channels, channels)
        gates = torch.full((order, heads), GATES[gate])
        if gate == "none":  # a graph that the edge loss alone knows of
            self.register_buffer("gates", gates)
        else:
            self.gates = nn.Parameter(gates)

    def forward(
        self,
        hidden: Tensor,
        neighbors: Tensor,
        kernel: Kernel,
        noise: Tensor | None,
        relations: Sequence[Relation],
        finish: Finish,
        edge_scale: float,
        reach: World,
    ) -> tuple[Tensor, Tensor | None]:
        """The next hidden state [n, c], and scale x Σ over edges and heads of log pi / in-degree unless that is 0.

        `neighbors` are the states that edges start from, the n nodes' own first; attention reaches the world given.
        """
        queries, keys = project(hidden, self.query, self.key, kernel)
        summary = share(summarize(keys, hidden, kernel, noise), reach)
        weight, bias = self._folded()
        attended = attend_to(queries, self._heard(summary, weight, bias), kernel)
        likelihood = None
        if edge_scale != 0:  # before the rest: it takes the most memory, for a moment
            graph = relations[0].adjacency
            edge_weights = (edge_scale / graph.in_degrees.to(hidden.dtype)).index_select(0, graph.targets)
            key_logs = edge_key_logs(self._with_halo(keys, neighbors[len(hidden) :], kernel), summary, kernel)
            likelihood = edge_log_likelihood(queries, key_logs, attended.log_normalizers, graph, edge_weights)
        return settle([attended.outputs, *self._related(neighbors, weight, bias, relations)], finish), likelihood

    def keys(self, hidden: Tensor, kernel: Kernel) -> KeyFeatures:
        """What the others see of nodes with this hidden state [n, c]."""
        return key_features(hidden, self.key, kernel)

    def query_map(self, kernel: Kernel) -> Callable[[Tensor], Tensor]:
        """The features [n, h, m] of what nodes look for, as a function of their hidden states."""
        return query_map(self.query, kernel)

    def heard(self, summary: KeySummary) -> KeySummary:
        """A summary of hidden states as queries meet it, its means mapped to what becomes of them."""
        return self._heard(summary, *self._folded())

    def relation_maps(self) -> tuple[Tensor, Tensor]:
        """The maps [j, c, c] and offsets [j, c] that turn each relation's sums of hidden states into its bias."""
        return self._relation_maps(*self._folded())

    def _folded(self) -> tuple[Tensor, Tensor]:
        """Weight [h, c, c] and bias [h, c] of the value of each head and its share of the output linear."""
        channels = self.output.out_features
        joins = self.output.weight.view(channels, self.heads, channels).transpose(0, 1)
        weight = torch.bmm(joins, self.value.weight.view(self.heads, channels, channels))
        return weight, torch.bmm(joins, self.value.bias.view(self.heads, channels, 1))[..., 0]

    def _heard(self, summary: KeySummary, weight: Tensor, bias: Tensor) -> KeySummary:
        # A head's weights sum to 1, so that its mean values can carry its part of the output's bias as well.
        return summary.mapped(weight, bias + self.output.bias / self.heads)

    def _relation_maps(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        gates = self.gates.sigmoid() if self.gate == "sigmoid" else self.gates
        return torch.mm(gates, weight.flatten(1)).unflatten(1, weight.shape[1:]), torch.mm(gates, bias)

    def _with_halo(self, keys: KeyFeatures, halo_rows: Tensor, kernel: Kernel) -> KeyFeatures:
        """The keys of the n nodes, and after them those of the halo's rows."""
        if len(halo_rows) == 0:
            return keys
        return KeyFeatures(torch.cat([keys.logs, self.keys(halo_rows, kernel).logs]), keys.peak)

    def _related(self, neighbors: Tensor, weight: Tensor, bias: Tensor, relations: Sequence[Relation]) -> list[Tensor]:
        """The residual and the relational bias, in as few tensors as it takes."""
        if not relations:
            return [neighbors] if self.residual else []
        maps, offsets = self._relation_maps(weight, bias)
        return [relate(neighbors, maps, offsets, relations, residual=self.residual)]
