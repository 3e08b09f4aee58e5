"""NodeFormer: a graph transformer in which every node attends to every other, at a cost linear in their number.

input linear, norm, ELU, dropout
layers x ( attention + relational bias, output linear, residual, norm, optional ELU, dropout )
output linear, over the last state or over all of them (jumping knowledge)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nfdist import seeds
from nfdist.attention.kernel import Kernel
from nfdist.config import AttentionConfig, ModelConfig, RelationConfig
from nfdist.errors import ConfigError
from nfdist.model.attention import AttentionLayer
from nfdist.model.halo import Halo
from nfdist.model.initialize import initialize
from nfdist.model.layers import Dropout, Finish, UndrawnLinear, embed, settle
from nfdist.model.relation import Relation
from nfdist.world import World


@dataclass(frozen=True)
class Draw:
    """Which randomness a forward pass uses. Noise and dropout belong to node ids, never to rows."""

    seed: int
    step: int
    node_ids: Tensor


@dataclass(frozen=True)
class Output:
    """Logits [n, outputs] and, where an edge scale was given, the scaled log likelihood of the edges.

    A baseline may have a loss of its own in its place, and `earlier` logits that are to be trained as the last ones.
    """

    logits: Tensor
    edge_log_likelihood: Tensor | None
    earlier: tuple[Tensor, ...] = ()


def evaluation_seed(attention: AttentionConfig, seed: int, step: int) -> int:
    """The seed of the directions in an evaluation of weights that have been trained for so many steps."""
    return seed if attention.eval_directions == "seed" else seeds.derive(seed, "evaluation", step)


class NodeFormer(nn.Module):
    """The model of a [model], an [attention] and a [relation] section.

    In training mode directions, noise and dropout follow the `Draw`; in evaluation mode there is no noise and no
    dropout, and the directions follow the seed alone or with the step, so that a prediction can be repeated.
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
        self.input = UndrawnLinear(num_features, channels)
        self.layers = nn.ModuleList(
            AttentionLayer(channels, self.model.heads, self.relation.order, self.relation.gate, self.model.residual)
            for _ in range(layers)
        )
        self.norms = nn.ModuleList(
            nn.LayerNorm(channels) for _ in range(layers + 1 if self.model.norm == "layer" else 0)
        )
        self.output = UndrawnLinear(joined, num_outputs)
        self._evaluation_kernels: dict[tuple[object, ...], Kernel] = {}
        initialize(self, seed)

    def forward(
        self,
        features: Tensor,
        relations: Sequence[Relation],
        draw: Draw,
        *,
        edge_scale: float = 0.0,
        world: World | None = None,
        halo: Halo | None = None,
    ) -> Output:
        """Logits of n nodes that attend to each other; `relations` are Â_1 .. Â_order over these nodes.

        With an edge scale, also scale x Σ over layers, edges and heads of log pi / in-degree of the edge's target.
        In a world of several ranks each has its own n nodes: attention of scope "world" reaches those of all ranks,
        and relations may start from the rows of a halo. Then every rank must call this.
        """
        self._check(features, relations, draw, edge_scale, halo)
        embedded = self.embed(features)
        with torch.autocast(embedded.device.type, enabled=False):  # exponents and sums need their digits
            return self._attend(embedded, relations, draw, edge_scale, world or World(), halo)

    def _attend(
        self,
        embedded: Tensor,
        relations: Sequence[Relation],
        draw: Draw,
        edge_scale: float,
        world: World,
        halo: Halo | None,
    ) -> Output:
        # An evaluation is always of the whole graph, whatever training could afford.
        reach = world if self.attention.scope == "world" or not self.training else World()
        hidden = settle([embedded], self.finish(0, draw))
        logits = self.logits(hidden, 0)
        likelihood = hidden.new_zeros(()) if edge_scale != 0 else None
        for index, layer in enumerate(self.layers, start=1):
            kernel, noise = self._randomness(draw, index, hidden)
            finish = self.finish(index, draw)
            neighbors = hidden if halo is None else halo.fetch(hidden, world)
            hidden, layer_likelihood = layer(hidden, neighbors, kernel, noise, relations, finish, edge_scale, reach)
            logits = self.logits(hidden, index, logits)
            likelihood = None if likelihood is None else likelihood + layer_likelihood
        assert logits is not None
        return Output(logits, likelihood)

    @property
    def num_features(self) -> int:
        return self.input.in_features

    @property
    def num_outputs(self) -> int:
        return self.output.out_features

    def layer(self, index: int) -> AttentionLayer:
        """The layer, from 1, that makes state `index`."""
        layer = self.layers[index - 1]
        assert isinstance(layer, AttentionLayer)
        return layer

    def edge_scale(self, edge_loss: float, count: int) -> float:
        """The scale that turns the likelihood into edge_loss x L_e, a mean over layers, heads and `count`.

        The count is that of edges (as published) or of nodes (as in the paper), over all ranks together.
        """
        return -edge_loss / (self.model.layers * self.model.heads * max(count, 1))

    def embed(self, features: Tensor) -> Tensor:
        """The input linear; rows may be sparse."""
        return embed(self.input, features)

    def logits(self, hidden: Tensor, index: int, so_far: Tensor | None = None) -> Tensor | None:
        """The output linear, a state at a time: with jumping knowledge it covers all states, without only the last."""
        if not self.model.jumping_knowledge:
            return self.output(hidden) if index == self.model.layers else None
        block = self.output.weight[:, index * self.model.channels : (index + 1) * self.model.channels]
        return torch.addmm(self.output.bias, hidden, block.t()) if so_far is None else so_far.addmm_(hidden, block.t())

    def finish(self, index: int, draw: Draw | None = None) -> Finish:
        """What makes state `index` of a linear map; the input's activation is not optional, dropout needs a draw."""
        dropout = None
        if self.training and self.model.dropout > 0:
            assert draw is not None
            key = seeds.derive(draw.seed, "dropout", draw.step, index)
            dropout = Dropout(self.model.dropout, key, draw.node_ids)
        norm = self.norms[index] if self.norms else None
        assert norm is None or isinstance(norm, nn.LayerNorm)
        return Finish(norm, index == 0 or self.model.activation == "elu", dropout)

    def evaluation_kernel(self, seed: int, layer: int, like: Tensor) -> Kernel:
        """The directions and the temperature that a layer (from 1) has in evaluation, on the device of `like`."""
        key = (seed, layer, like.device, like.dtype)
        if key not in self._evaluation_kernels:
            self._evaluation_kernels = {
                known: kept for known, kept in self._evaluation_kernels.items() if known[0] == seed
            }
            temperature = self.attention.eval_temperature or self.attention.temperature
            self._evaluation_kernels[key] = self._kernel(seed, "evaluation", layer, temperature, like)
        return self._evaluation_kernels[key]

    def _randomness(self, draw: Draw, layer: int, like: Tensor) -> tuple[Kernel, Tensor | None]:
        """The layer's directions, and its Gumbel noise [n, h, k] where there is any."""
        if not self.training:
            seed = evaluation_seed(self.attention, draw.seed, draw.step)
            return self.evaluation_kernel(seed, layer, like), None
        kernel = self._kernel(draw.seed, draw.step, layer, self.attention.temperature, like)
        if self.attention.kind == "softmax":
            return kernel, None
        heads, draws = self.model.heads, self.attention.noise_draws
        key = seeds.derive(draw.seed, "noise", draw.step, layer)
        return kernel, seeds.gumbel(key, draw.node_ids, heads * draws, like.dtype).unflatten(1, (heads, draws))

    def _kernel(self, seed: int, step: int | str, layer: int, temperature: float, like: Tensor) -> Kernel:
        return Kernel.draw(
            self.model.random_features,
            self.model.channels,
            temperature,
            seeds.generator(seed, "directions", step, layer),
            epsilon=self.attention.epsilon,
            device=like.device,
            dtype=like.dtype,
        )

    def _check(
        self, features: Tensor, relations: Sequence[Relation], draw: Draw, edge_scale: float, halo: Halo | None
    ) -> None:
        check_features(features, self.num_features, draw)
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
            sources = len(features) + (0 if halo is None else halo.num_received)
            if relation.adjacency.num_sources != sources:
                raise ConfigError(f"relation {hop} has {relation.adjacency.num_sources} sources, given are {sources}")


def check_features(features: Tensor, num_features: int, draw: Draw) -> None:
    """Refuse features of another width, with NaN or infinite entries, or not as many as there are node ids."""
    if features.ndim != 2 or features.shape[1] != num_features:
        raise ConfigError(f"features must be [nodes, {num_features}], got {list(features.shape)}")
    if draw.node_ids.shape != features.shape[:1]:
        raise ConfigError(f"node_ids must be [{len(features)}], one for every node, got {list(draw.node_ids.shape)}")
    values = features.values() if features.layout == torch.sparse_csr else features
    if not torch.isfinite(values.sum()):
        dense = features.to_dense() if features.layout == torch.sparse_csr else features
        broken = (~torch.isfinite(dense)).any(1).nonzero()[:, 0]
        if len(broken):
            raise ConfigError(f"features of {len(broken)} nodes are NaN or infinite, first at row {int(broken[0])}")
