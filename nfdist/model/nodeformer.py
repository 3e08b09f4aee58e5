"""NodeFormer: a graph transformer in which every node attends to every other, at a cost linear in their number.

input linear, with a learned row for the label where labels are inputs (label_input.py), norm, ELU, dropout
layers x ( attention + relational bias, output linear, residual, norm, optional ELU, dropout, optional feed-forward )
output linear, over the last state or over all of them (jumping knowledge)
beside them, optionally, a branch of graph convolutions, whose logits are mixed with these (branch.py)
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from nfdist import seeds
from nfdist.attention import ops
from nfdist.attention.kernel import Kernel
from nfdist.attention.summary import KeySummary
from nfdist.config import MOST_ORDER, AttentionConfig, Config, ModelConfig, RelationConfig
from nfdist.errors import ConfigError
from nfdist.graph.halo import Halo
from nfdist.graph.relation import Relation
from nfdist.model.branch import GraphBranch
from nfdist.model.epilogue import Dropout, Epilogue, add_norm
from nfdist.model.feed_forward import FeedForward
from nfdist.model.forward_pass import ForwardPass
from nfdist.model.gaps import FEATURE_MEANS, fill_gaps
from nfdist.model.initialize import initialize
from nfdist.model.label_input import LabelInput, label_terms
from nfdist.model.layer import AttentionLayer, BoundLayer
from nfdist.model.linear import InputLinear, UndrawnLinear
from nfdist.model.protocol import Draw, Output, check_features, check_relations, check_sizes
from nfdist.world import World


def evaluation_seed(attention: AttentionConfig, seed: int, step: int) -> int:
    """The seed of the directions in an evaluation of weights that have been trained for so many steps."""
    return seed if attention.eval_directions == "seed" else seeds.derive(seed, "evaluation", step)


class NodeFormer(nn.Module):
    """The model of a [model], an [attention] and a [relation] section, which takes labels with `label_inputs`.

    In training mode directions, noise and dropout follow the `Draw`; in evaluation mode there is no noise and no
    dropout, and the directions follow the seed alone or with the step, so that a prediction can be repeated.
    """

    orders = range(MOST_ORDER + 1)
    needs_graph = True
    crosses_ranks = True
    has_auxiliary_loss = True
    heeds_weights = True
    takes_labels = True
    sweeps = True
    divides = True
    inductive = True
    one_label = False
    runs_on_gpu = True
    weighs_pairs = False
    undecayed: tuple[str, ...] = ()
    recompute = False
    feature_means: Tensor | None

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        model: ModelConfig | None = None,
        attention: AttentionConfig | None = None,
        relation: RelationConfig | None = None,
        *,
        seed: int = 0,
        label_inputs: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(num_features, num_outputs)
        self.model = model or ModelConfig()
        self.attention = attention or AttentionConfig()
        self.relation = relation or RelationConfig()
        channels, layers = self.model.channels, self.model.layers
        joined = channels * (layers + 1) if self.model.jumping_knowledge else channels
        self.input = InputLinear(num_features, channels, standardize=self.model.standardize)
        self.label_input = LabelInput(num_outputs, channels) if label_inputs else None
        self.layers = nn.ModuleList(
            AttentionLayer(
                channels,
                self.model.heads,
                self.relation.order,
                self.relation.gate,
                self.model.residual,
                self._feed_forward(),
                self.model.join_heads,
            )
            for _ in range(layers)
        )
        self.norms = nn.ModuleList(
            nn.LayerNorm(channels) for _ in range(layers + 1 if self.model.norm == "layer" else 0)
        )
        self.output = UndrawnLinear(joined, num_outputs)
        self.branch: GraphBranch | None = None
        if self.model.graph_layers:
            branch = (channels, self.model.graph_layers, self.model.branch_share)
            self.branch = GraphBranch(
                num_features,
                num_outputs,
                *branch,
                residual=self.model.branch_residual,
                norm=self.model.norm == "layer",
                scaled=self.model.standardize,
                label_inputs=label_inputs,
            )
        self.register_buffer(FEATURE_MEANS, None)
        self._evaluation_kernels: dict[tuple[object, ...], Kernel] = {}
        initialize(self, seed)

    @classmethod
    def build(cls, config: Config, num_features: int, num_outputs: int, seed: int, num_nodes: int = 0) -> "NodeFormer":
        sections, label_inputs = (config.model, config.attention, config.relation), config.train.label_inputs > 0
        return cls(num_features, num_outputs, *sections, seed=seed, label_inputs=label_inputs)

    @classmethod
    def check_settings(cls, model: ModelConfig) -> None:
        """Any will do."""

    @staticmethod
    def sizes_of(weights: Mapping[str, Tensor]) -> tuple[int, int]:
        return weights["input.weight"].shape[1], len(weights["output.bias"])

    @staticmethod
    def nodes_of(weights: Mapping[str, Tensor]) -> int:
        return 0

    @staticmethod
    def pair_numbers(config: Config, *, training: bool) -> float:
        return 0.0

    def forward(
        self,
        features: Tensor,
        relations: Sequence[Relation],
        draw: Draw,
        *,
        auxiliary_scale: float = 0.0,
        world: World | None = None,
        halo: Halo | None = None,
    ) -> Output:
        """Logits of n nodes that attend to each other; `relations` are Â_1 .. Â_order over them, or of powers Â_1.

        With a scale, also the edge loss: scale x Σ over layers, edges and heads of log pi / in-degree of the target.
        In a world of several ranks each has its own n nodes: attention of scope "world" reaches those of all ranks,
        and relations may start from the rows of a halo. Then every rank must call this.
        """
        filled = fill_gaps(features, self.feature_means)
        self._check(filled, relations, draw, auxiliary_scale, halo)
        recomputed = self.recompute and self.training
        given = features if recomputed else filled
        del features, filled  # or layers would hold on to what they need not
        whole = world or World()
        return ForwardPass(self, given, relations, draw, auxiliary_scale, whole, halo, recomputed).output()

    def bind(self, index: int, kernel: Kernel, summary: KeySummary, draw: Draw | None = None) -> BoundLayer:
        """The layer, from 1, that makes state `index`; in an evaluation without a draw."""
        block_dropout = self._dropout(draw, index, "feed_forward")
        return self.layer(index).bind(kernel, summary, self.epilogue(index, draw), block_dropout)

    def first_state(self, features: Tensor, labels: Tensor | None = None) -> Tensor:
        """State 0 of rows of features, and of labels that are given as inputs, in an evaluation."""
        embedded = self.input(fill_gaps(features, self.feature_means))
        return add_norm([embedded, *label_terms(self.label_input, labels, len(features))], self.epilogue(0))

    @property
    def num_states(self) -> int:
        """How many states of all nodes an evaluation makes, partial sums included."""
        states = self.model.layers + 1 + (0 if self.branch is None else self.branch.num_layers + 1)
        return states + self.model.layers * self.relation.num_partials

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

    def auxiliary_scale(self, weight: float, count: int) -> float:
        """The scale that turns the likelihood into weight x L_e, a mean over layers, heads and `count`.

        The count is that of edges (as published) or of nodes (as in the paper), over all ranks together.
        """
        return -weight / (self.model.layers * self.model.heads * max(count, 1))

    def logits(self, hidden: Tensor, index: int, so_far: Tensor | None = None) -> Tensor | None:
        """The output linear, a state at a time: with jumping knowledge it covers all states, without only the last."""
        if not self.model.jumping_knowledge:
            return self.output(hidden) if index == self.model.layers else None
        block = self.output.weight[:, index * self.model.channels : (index + 1) * self.model.channels]
        return torch.addmm(self.output.bias, hidden, block.t()) if so_far is None else so_far.addmm_(hidden, block.t())

    def epilogue(self, index: int, draw: Draw | None = None) -> Epilogue:
        """What makes state `index` of a linear map; the input's activation is not optional, dropout needs a draw."""
        norm = self.norms[index] if self.norms else None
        assert norm is None or isinstance(norm, nn.LayerNorm)
        return Epilogue(norm, index == 0 or self.model.activation == "elu", self._dropout(draw, index))

    def branch_epilogue(self, branch: GraphBranch, index: int, draw: Draw | None = None) -> Epilogue:
        """What makes state `index` of the graph branch."""
        return Epilogue(branch.norm(index), True, self._dropout(draw, index, "branch"))

    def _feed_forward(self) -> FeedForward | None:
        """The block after a layer, if there is one."""
        factor, norm = self.model.feed_forward, self.model.norm == "layer"
        return FeedForward(self.model.channels, factor, norm=norm) if factor else None

    def _dropout(self, draw: Draw | None, *which: int | str) -> Dropout | None:
        if not self.training or self.model.dropout == 0:
            return None
        assert draw is not None
        return Dropout(self.model.dropout, seeds.derive(draw.seed, "dropout", draw.step, *which), draw.node_ids)

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

    def randomness(self, draw: Draw, layer: int, like: Tensor) -> tuple[Kernel, Tensor | None]:
        """The layer's directions, and its Gumbel noise [n, h, k] where there is any."""
        if not self.training:
            seed = evaluation_seed(self.attention, draw.seed, draw.step)
            return self.evaluation_kernel(seed, layer, like), None
        if draw.directions is None:
            kernel = self._kernel(draw.seed, draw.step, layer, self.attention.temperature, like)
        else:
            kernel = Kernel(draw.directions[layer - 1], self.attention.temperature, self.attention.epsilon)
        if self.attention.kind == "softmax":
            return kernel, None
        heads, draws = self.model.heads, self.attention.noise_draws
        key = seeds.derive(draw.seed, "noise", draw.step, layer)
        return kernel, ops.gumbel(key, draw.node_ids, heads * draws, like.dtype).unflatten(1, (heads, draws))

    def directions(self, seed: int, step: int) -> Tensor:
        """The directions of all layers in a training step, [layers, m, d], on the CPU."""
        like = torch.empty(0, dtype=self.output.weight.dtype)
        temperature = self.attention.temperature
        kernels = (self._kernel(seed, step, index, temperature, like) for index in range(1, self.model.layers + 1))
        return torch.stack([kernel.directions for kernel in kernels])

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
        self, features: Tensor, relations: Sequence[Relation], draw: Draw, scale: float, halo: Halo | None
    ) -> None:
        check_features(features, self.num_features, draw)
        if scale != 0 and not relations:
            raise ConfigError("edge loss needs a graph: set relation.order to at least 1 or the edge loss to 0")
        sources = len(features) + (0 if halo is None else halo.num_copied)
        name = f"relation.order = {self.relation.order}{' by powers' if self.relation.kind == 'power' else ''}"
        check_relations(name, relations, self.relation.num_patterns, len(features), sources)
