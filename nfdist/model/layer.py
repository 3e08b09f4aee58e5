"""One layer of NodeFormer, written once: every node attends to every other, and to its neighbors once more.

    out_u = Σ_heads W (attention over all keys) + Σ_j Â_j (values) W_j

It is a function of rows: their hidden states, the summary of all keys, and their `Neighbors`. Training, the evaluation
of a whole graph and the prediction of new nodes provide these three, and none of them computes a layer by itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from nfdist.attention import ops
from nfdist.attention.attend import Attended, attend_to, key_logs_met
from nfdist.attention.kernel import Kernel, KeyFeatures
from nfdist.attention.ops.chunks import by_head
from nfdist.attention.summary import KeySummary
from nfdist.config import Gate, JoinHeads
from nfdist.devices import exact_products
from nfdist.graph.neighbors import Neighbors
from nfdist.model.epilogue import Dropout, Epilogue, add_norm
from nfdist.model.feed_forward import FeedForward
from nfdist.model.linear import UndrawnLinear
from nfdist.sparse.adjacency import Adjacency

# What the gate of a relation starts from; "none" stays closed.
GATES: dict[Gate, float] = {"sigmoid": 0.1, "identity": 1.0, "none": 0.0}


class AttentionLayer(nn.Module):
    """The weights of a layer, and what is made of them before any row is seen.

    The value of a node is a linear map of its hidden state, and so is what the output linear makes of it. Hence the
    values are never formed: attention and relations average hidden states, and the two maps, folded into one a head,
    are applied to a summary's means and once to each relation's sums. Heads may also be joined by their mean, without
    an output linear. A feed-forward block may follow.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        order: int,
        gate: Gate,
        residual: bool,
        feed_forward: FeedForward | None = None,
        join_heads: JoinHeads = "linear",
    ) -> None:
        super().__init__()
        self.heads, self.gate, self.residual = heads, gate, residual
        self.query, self.key, self.value = (UndrawnLinear(channels, heads * channels) for _ in range(3))
        self.output = UndrawnLinear(heads * channels, channels) if join_heads == "linear" else None
        self.feed_forward = feed_forward
        gates = torch.full((order, heads), GATES[gate])
        if gate == "none":  # a graph that the edge loss alone knows of
            self.register_buffer("gates", gates)
        else:
            self.gates = nn.Parameter(gates)

    @exact_products()  # of exponents, which would be off by hundredths
    def project(self, hidden: Tensor, kernel: Kernel) -> tuple[Tensor, KeyFeatures]:
        """The features of queries [n, h, m] and keys of hidden states [n, c], in one pass where they allow it."""
        if kernel.epsilon > 0:
            return self.query_map(kernel)(hidden), self.keys(hidden, kernel)
        maps = (*self._query_features(kernel), self.key.weight, self.key.bias)
        queries, logs = ops.project(hidden, *maps, kernel.scaled, kernel.half_square)
        return queries, KeyFeatures(logs, None)

    @exact_products()
    def keys(self, hidden: Tensor, kernel: Kernel) -> KeyFeatures:
        """The features of the keys of hidden states [n, c] alone."""
        return kernel.key_features(by_head(hidden, self.key.weight, self.key.bias, kernel.channels))

    def query_map(self, kernel: Kernel) -> Callable[[Tensor], Tensor]:
        """The features [n, h, m] of queries alone, as a function of hidden states."""
        if kernel.epsilon > 0:
            query = self.query
            return lambda hidden: kernel.query_features(by_head(hidden, query.weight, query.bias, kernel.channels))
        weight, bias = self._query_features(kernel)
        return lambda hidden: by_head(hidden, weight, bias, kernel.num_features)

    def bind(
        self, kernel: Kernel, summary: KeySummary, epilogue: Epilogue, block_dropout: Dropout | None = None
    ) -> "BoundLayer":
        """The layer that has seen the summary of all keys' hidden states; `block_dropout` is the feed-forward's."""
        weight, bias, output_bias = self._joined_values()
        gates = self.gates.sigmoid() if self.gate == "sigmoid" else self.gates
        maps, offsets = torch.mm(gates, weight.flatten(1)).unflatten(1, weight.shape[1:]), torch.mm(gates, bias)
        # A head's weights sum to 1, so that its mean values can carry its part of the output's bias as well.
        mapped = summary.mapped(weight, bias if output_bias is None else bias + output_bias / self.heads)
        return BoundLayer(self, kernel, mapped, maps, offsets, epilogue, block_dropout)

    def edge_log_likelihood(
        self,
        queries: Tensor,
        keys: KeyFeatures,
        halo: Tensor,
        summary: KeySummary,
        log_normalizers: Tensor,
        graph: Adjacency,
        kernel: Kernel,
        scale: float,
    ) -> Tensor:
        """scale x Σ over edges and heads of log pi / in-degree of the target; edges may start from `halo` rows too."""
        if len(halo):
            keys = KeyFeatures(torch.cat([keys.logs, self.keys(halo, kernel).logs]), keys.peak)
        target_weights = scale / graph.in_degrees.to(queries.dtype)
        key_logs = key_logs_met(keys, summary, kernel)
        return ops.edge_log_likelihood(queries, key_logs, log_normalizers, graph, target_weights)

    def _joined_values(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """What a hidden state becomes as a head's part of the output, a map [h, c, c] and an offset [h, c] of each.

        The third is the output's own bias [c], where heads are joined by a linear map.
        """
        channels = self.value.in_features
        values, offsets = self.value.weight.view(self.heads, channels, channels), self.value.bias.view(self.heads, -1)
        if self.output is None:
            return values / self.heads, offsets / self.heads, None
        joins = self.output.weight.view(channels, self.heads, channels).transpose(0, 1)
        return torch.bmm(joins, values), torch.bmm(joins, offsets[..., None])[..., 0], self.output.bias

    def _query_features(self, kernel: Kernel) -> tuple[Tensor, Tensor]:
        """Weight [h x m, c] and bias of query features; without epsilon these are linear in the query: one map does."""
        query, channels = self.query, kernel.channels
        weight = torch.matmul(kernel.scaled, query.weight.view(-1, channels, query.in_features))
        return weight.flatten(0, 1), torch.mm(query.bias.view(-1, channels), kernel.scaled.t()).flatten()


@dataclass(frozen=True)
class BoundLayer:
    """A layer with the summary of all keys, mapped to what becomes of them: what is left is a function of rows."""

    layer: AttentionLayer
    kernel: Kernel
    summary: KeySummary
    maps: Tensor
    offsets: Tensor
    epilogue: Epilogue
    block_dropout: Dropout | None = None

    @cached_property
    def queries(self) -> Callable[[Tensor], Tensor]:
        """The features [n, h, m] of queries of hidden states."""
        return self.layer.query_map(self.kernel)

    def __call__(self, hidden: Tensor, neighbors: Neighbors) -> Tensor:
        """The next hidden state [n, c] of rows."""
        return self.update(hidden, self.attend(self.queries(hidden)).outputs, neighbors)

    def attend(self, queries: Tensor) -> Attended:
        """What query features [n, h, m] get from all keys."""
        return attend_to(queries, self.summary, self.kernel)

    def update(self, hidden: Tensor, attended: Tensor, neighbors: Neighbors) -> Tensor:
        """The next hidden state of rows that got `attended` [n, c] from all keys."""
        terms = [attended]
        if self.layer.residual:
            terms.append(hidden)
        if len(self.maps):
            terms.append(neighbors.related(hidden, self.maps, self.offsets))
        made, block = add_norm(terms, self.epilogue), self.layer.feed_forward
        return made if block is None else block(made, self.block_dropout)
