"""What the baselines share: they are called, trained, scored and stored as NodeFormer is."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfdist import seeds
from nfdist.attention import ops
from nfdist.config import Config, ModelConfig
from nfdist.devices import full_precision
from nfdist.graph.halo import Halo
from nfdist.graph.neighbors import Propagator
from nfdist.graph.relation import Relation
from nfdist.model.baselines.batch_norm import BatchNorm
from nfdist.model.gaps import FEATURE_MEANS, fill_gaps
from nfdist.model.initialize import initialize
from nfdist.model.linear import InputLinear
from nfdist.model.protocol import Draw, Output, check_features, check_relations, check_sizes, feature_dropout
from nfdist.world import World

Self = TypeVar("Self", bound="Baseline")


class Baseline(nn.Module, ABC):
    """A model of a [model] section alone, with an `input` linear and `norms`; rows of features may be sparse.

    Dropout follows the `Draw` in training mode, and there is none in evaluation mode.
    """

    orders = range(1, 2)
    needs_graph = True
    crosses_ranks = False
    has_auxiliary_loss = False
    heeds_weights = True
    takes_labels = False
    sweeps = False
    divides = False
    inductive = True
    one_label = False
    runs_on_gpu = True
    weighs_pairs = False
    undecayed: tuple[str, ...] = ()
    recompute = False
    input: InputLinear
    norms: nn.ModuleList
    sizes: Tensor
    feature_means: Tensor | None
    _world = World()  # of the pass under way

    def __init__(
        self, num_features: int, num_outputs: int, model: ModelConfig, *, seed: int = 0, num_nodes: int = 0
    ) -> None:
        super().__init__()
        check_sizes(num_features, num_outputs)
        self.model, self.num_nodes = model, num_nodes
        # Among the weights, so that a checkpoint alone says what to build.
        self.register_buffer(FEATURE_MEANS, None)
        self.register_buffer("sizes", torch.tensor([num_features, num_outputs]))
        self.make_layers(num_features, num_outputs)
        initialize(self, seed)

    @classmethod
    def build(cls: type[Self], config: Config, num_features: int, num_outputs: int, seed: int, num_nodes: int) -> Self:
        return cls(num_features, num_outputs, config.model, seed=seed, num_nodes=num_nodes)

    @classmethod
    def check_settings(cls, model: ModelConfig) -> None:
        """Most can have any."""

    @staticmethod
    def sizes_of(weights: Mapping[str, Tensor]) -> tuple[int, int]:
        num_features, num_outputs = weights["sizes"].tolist()
        return num_features, num_outputs

    @staticmethod
    def nodes_of(weights: Mapping[str, Tensor]) -> int:
        return 0

    @staticmethod
    def pair_numbers(config: Config, *, training: bool) -> float:
        return 0.0

    @abstractmethod
    def make_layers(self, num_features: int, num_outputs: int) -> None:
        """Make the layers; their weights are drawn afterwards."""

    @abstractmethod
    def logits(self, embedded: Tensor, relations: Sequence[Propagator], draw: Draw) -> Tensor:
        """Logits [n, outputs] of what the input linear made of the features.

        In a model that `divides` or is `inductive` they depend on other rows by calls of `propagate` alone, always the
        same ones.
        """

    @property
    def num_features(self) -> int:
        return int(self.sizes[0])

    @property
    def num_outputs(self) -> int:
        return int(self.sizes[1])

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
        """Logits of n nodes that get messages along the edges of Â_1; each rank has a graph of its own."""
        assert halo is None or not self.needs_graph
        self._world = world or World()
        features = fill_gaps(features, self.feature_means)
        self.check(features, relations, draw)
        embedded: Tensor = self.input(features, feature_dropout(self.model, draw, self.training))
        with full_precision(embedded.device):
            return self.answer(features, embedded, relations, draw, auxiliary_scale / self._world.size)

    def answer(
        self, features: Tensor, embedded: Tensor, relations: Sequence[Relation], draw: Draw, scale: float
    ) -> Output:
        """The logits, and a loss of the model's own times `scale`, this rank's part, where it has one."""
        return Output(self.logits(embedded, relations, draw), None)

    def directions(self, seed: int, step: int) -> Tensor | None:
        """Baselines have none."""
        return None

    def auxiliary_scale(self, weight: float, count: int) -> float:
        """Most baselines have no loss of their own, and those of others are means already."""
        return weight if self.has_auxiliary_loss else 0.0

    def make_input(self, num_features: int, width: int, *, bias: bool = True) -> InputLinear:
        """The linear map that features go through first."""
        return InputLinear(num_features, width, bias=bias, standardize=self.model.standardize)

    def make_norms(self, widths: Sequence[int]) -> nn.ModuleList:
        """A norm for every hidden state that `activate` makes, or none for any."""
        if self.model.norm == "none":
            return nn.ModuleList()
        return nn.ModuleList(
            nn.LayerNorm(width) if self.model.norm == "layer" else BatchNorm(width) for width in widths
        )

    def activate(self, rows: Tensor, index: int, draw: Draw) -> Tensor:
        """Hidden state `index` (from 0) of what its layer made: dropout(activation(norm(rows)))."""
        if len(self.norms):
            norm = self.norms[index]
            rows = norm(rows, self._world) if isinstance(norm, BatchNorm) else norm(rows)
        rows = F.elu(rows) if self.model.activation == "elu" else F.relu(rows)
        if not self.training or self.model.dropout == 0:
            return rows
        key = seeds.derive(draw.seed, "dropout", draw.step, index)
        keep, factor = ops.keep_mask(key, draw.node_ids, rows.shape[1], self.model.dropout)
        return rows * keep * factor

    def check(self, features: Tensor, relations: Sequence[Relation], draw: Draw) -> None:
        """Refuse what the model cannot be called with."""
        check_features(features, self.num_features, draw)
        if self.needs_graph:
            check_relations(f"model.name = {self.model.name}", relations, 1, len(features), len(features))


class Convolution(nn.Module):
    """Â rows + bias, of which the linear map comes before."""

    def __init__(self, width: int, *, bias: bool = True) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, relation: Propagator, rows: Tensor) -> Tensor:
        rows = relation.propagate(rows)
        return rows if self.bias is None else rows + self.bias
