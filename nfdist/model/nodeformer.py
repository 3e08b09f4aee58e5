"""NodeFormer: a graph transformer in which every node attends to every other, at a cost linear in their number.

input linear, norm, ELU, dropout
layers x ( attention + relational bias, output linear, residual, norm, optional ELU, dropout )
output linear, over the last state or over all of them (jumping knowledge)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from nfdist import seeds
from nfdist.attention.attend import attend_to
from nfdist.attention.edges import edge_key_logs, edge_log_likelihood
from nfdist.attention.kernel import Kernel
from nfdist.attention.summary import summarize
from nfdist.config import AttentionConfig, ModelConfig, RelationConfig
from nfdist.errors import ConfigError
from nfdist.model.layers import Dropout, Finish, project, settle
from nfdist.model.relation import Relation, relate


@dataclass(frozen=True)
class Draw:
    """Which randomness a forward pass uses. Noise and dropout belong to node ids, never to rows."""

    seed: int
    step: int
    node_ids: Tensor


@dataclass(frozen=True)
class Output:
    """Logits [n, outputs] and, where an edge scale was given, the scaled log likelihood of the edges."""

    logits: Tensor
    edge_log_likelihood: Tensor | None


class NodeFormer(nn.Module):
    """The model of a [model], an [attention] and a [relation] section.

    In training mode directions, noise and dropout follow the `Draw`; in evaluation mode there is no noise and no
    dropout, and the directions follow the seed alone, so that a prediction can be repeated.
    """

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        model: ModelConfig | None = None,
        attention: AttentionConfig | None = None,
        relation: RelationConfig | None = None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.model = model or ModelConfig()
        self.attention = attention or AttentionConfig()
        self.relation = relation or RelationConfig()
        if num_features < 1 or num_outputs < 1:
            raise ConfigError(f"a model needs input features and outputs, got {num_features} and {num_outputs}")
        channels, layers = self.model.channels, self.model.layers
        joined = channels * (layers + 1) if self.model.jumping_knowledge else channels
        self.input = _linear(num_features, channels)
        self.layers = nn.ModuleList(
            AttentionLayer(channels, self.model.heads, self.relation.order, self.relation.gate, self.model.residual)
            for _ in range(layers)
        )
        self.norms = nn.ModuleList(
            nn.LayerNorm(channels) for _ in range(layers + 1 if self.model.norm == "layer" else 0)
        )
        self.output = _linear(joined, num_outputs)
        initialize(self, seed)

    def forward(
        self, features: Tensor, relations: Sequence[Relation], draw: Draw, *, edge_scale: float = 0.0
    ) -> Output:
        """Logits of n nodes that attend to each other; `relations` are Â_1 .. Â_order over these nodes.

        With an edge scale, also scale x Σ over layers, edges and heads of log pi / in-degree of the edge's target.
        """
        self._check(features, relations, draw, edge_scale)
        hidden = settle([self.input(features)], self._finish(draw, 0))
        logits = self._logits(hidden, 0)
        likelihood = features.new_zeros(()) if edge_scale != 0 else None
        for index, layer in enumerate(self.layers, start=1):
            kernel, noise = self._randomness(draw, index, features)
            finish = self._finish(draw, index)
            hidden, layer_likelihood = layer(hidden, kernel, noise, relations, finish, edge_scale)
            logits = self._logits(hidden, index, logits)
            likelihood = None if likelihood is None else likelihood + layer_likelihood
        assert logits is not None
        return Output(logits, likelihood)

    def edge_scale(self, edge_loss: float, count: int) -> float:
        """The scale that turns the likelihood into edge_loss x L_e, a mean over layers, heads and `count`.

        The count is that of edges (as published) or of nodes (as in the paper), over all ranks together.
        """
        return -edge_loss / (self.model.layers * self.model.heads * max(count, 1))

    def _logits(self, hidden: Tensor, index: int, so_far: Tensor | None = None) -> Tensor | None:
        """The output linear, a state at a time: with jumping knowledge it covers all states, without only the last."""
        if not self.model.jumping_knowledge:
            return self.output(hidden) if index == self.model.layers else None
        block = self.output.weight[:, index * self.model.channels : (index + 1) * self.model.channels]
        return torch.addmm(self.output.bias, hidden, block.t()) if so_far is None else so_far.addmm_(hidden, block.t())

    def _finish(self, draw: Draw, index: int) -> Finish:
        """What makes state `index` of a linear map; the input's activation is not optional."""
        dropout = None
        if self.training and self.model.dropout > 0:
            key = seeds.derive(draw.seed, "dropout", draw.step, index)
            dropout = Dropout(self.model.dropout, key, draw.node_ids)
        norm = self.norms[index] if self.norms else None
        assert norm is None or isinstance(norm, nn.LayerNorm)
        return Finish(norm, index == 0 or self.model.activation == "elu", dropout)

    def _randomness(self, draw: Draw, layer: int, like: Tensor) -> tuple[Kernel, Tensor | None]:
        """The layer's directions, and its Gumbel noise [n, h, k] where there is any."""
        step: int | str = draw.step if self.training else "evaluation"
        temperature = self.attention.temperature
        if not self.training and self.attention.eval_temperature > 0:
            temperature = self.attention.eval_temperature
        kernel = Kernel.draw(
            self.model.random_features,
            self.model.channels,
            temperature,
            seeds.generator(draw.seed, "directions", step, layer),
            epsilon=self.attention.epsilon,
            device=like.device,
            dtype=like.dtype,
        )
        if not self.training or self.attention.kind == "softmax":
            return kernel, None
        heads, draws = self.model.heads, self.attention.noise_draws
        key = seeds.derive(draw.seed, "noise", draw.step, layer)
        return kernel, seeds.gumbel(key, draw.node_ids, heads * draws, like.dtype).view(-1, heads, draws)

    def _check(self, features: Tensor, relations: Sequence[Relation], draw: Draw, edge_scale: float) -> None:
        if features.ndim != 2 or features.shape[1] != self.input.in_features:
            raise ConfigError(f"features must be [nodes, {self.input.in_features}], got {list(features.shape)}")
        if draw.node_ids.shape != features.shape[:1]:
            raise ConfigError(
                f"node_ids must be [{len(features)}], one for every node, got {list(draw.node_ids.shape)}"
            )
        if edge_scale != 0 and not relations:
            raise ConfigError("edge loss needs a graph: set relation.order to at least 1 or the edge loss to 0")
        if len(relations) != self.relation.order:
            raise ConfigError(
                f"relation.order is {self.relation.order}, got {len(relations)} relations: build one for each hop"
            )
        for hop, relation in enumerate(relations, start=1):
            if relation.adjacency.num_nodes != len(features):
                raise ConfigError(
                    f"relation {hop} has {relation.adjacency.num_nodes} nodes, features have {len(features)}"
                )
        if not torch.isfinite(features.sum()):
            broken = (~torch.isfinite(features)).any(1).nonzero()[:, 0]
            if len(broken):
                raise ConfigError(f"features of {len(broken)} nodes are NaN or infinite, first at row {int(broken[0])}")


class AttentionLayer(nn.Module):
    """All-pair attention plus the relational bias, joined over the heads by an output linear.

    The value of a node is a linear map of its hidden state, and so is what becomes of it after it was heard. Hence the
    values are never formed: attention and relations average hidden states, and the maps, folded into one a head, are
    applied to a summary's means and once to each relation's sums.
    """

    def __init__(self, channels: int, heads: int, order: int, gate: str, residual: bool) -> None:
        super().__init__()
        self.heads, self.gate, self.residual = heads, gate, residual
        self.query, self.key, self.value = (_linear(channels, heads * channels) for _ in range(3))
        self.output = _linear(heads * channels, channels)
        self.gates = nn.Parameter(torch.full((order, heads), 0.1 if gate == "sigmoid" else 1.0))

    def forward(
        self,
        hidden: Tensor,
        kernel: Kernel,
        noise: Tensor | None,
        relations: Sequence[Relation],
        finish: Finish,
        edge_scale: float,
    ) -> tuple[Tensor, Tensor | None]:
        """The next hidden state [n, c], and scale x Σ over edges and heads of log pi / in-degree unless that is 0."""
        channels = hidden.shape[1]
        joins = self.output.weight.view(channels, self.heads, channels)
        weight = torch.einsum("ohv,hvc->hoc", joins, self.value.weight.view(self.heads, channels, channels))
        bias = torch.einsum("ohv,hv->ho", joins, self.value.bias.view(self.heads, channels))
        queries, keys = project(hidden, self.query, self.key, kernel)
        summary = summarize(keys, hidden, kernel, noise)
        # A head's weights sum to 1, so that its mean values can carry its part of the output's bias as well.
        attended = attend_to(queries, summary.mapped(weight, bias + self.output.bias / self.heads), kernel)
        settled = settle([attended.outputs, *self._related(hidden, weight, bias, relations)], finish)
        if edge_scale == 0:
            return settled, None
        graph = relations[0].adjacency
        edge_weights = (edge_scale / graph.in_degrees.to(hidden.dtype)).index_select(0, graph.targets)
        key_logs = edge_key_logs(keys, summary, kernel)
        return settled, edge_log_likelihood(
            queries, key_logs, attended.log_normalizers, graph.indptr, graph.sources, edge_weights
        )

    def _related(self, hidden: Tensor, weight: Tensor, bias: Tensor, relations: Sequence[Relation]) -> list[Tensor]:
        """The residual and the relational bias, in as few tensors as it takes."""
        if not relations:
            return [hidden] if self.residual else []
        gates = self.gates.sigmoid() if self.gate == "sigmoid" else self.gates
        maps, offsets = torch.einsum("jh,hoc->joc", gates, weight), torch.einsum("jh,ho->jo", gates, bias)
        return [relate(hidden, maps, offsets, relations, residual=self.residual)]


def _linear(num_inputs: int, num_outputs: int) -> nn.Linear:
    """A linear map whose weights are still to be drawn: torch's own start would use up the global random state."""
    linear: nn.Linear = skip_init(nn.Linear, num_inputs, num_outputs)
    return linear


def initialize(module: nn.Module, seed: int) -> None:
    """Draw the weights of every linear layer anew, from the seed and the layer's name alone (torch's usual ranges)."""
    with torch.no_grad():
        for name, child in module.named_modules():
            if isinstance(child, nn.Linear):
                generator = seeds.generator(seed, "weights", name)
                bound = child.in_features**-0.5
                for parameter in (child.weight, child.bias):
                    parameter.copy_((torch.rand(parameter.shape, generator=generator) * 2 - 1) * bound)
