"""What the baselines share: they are called, trained, scored and stored as NodeFormer is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfdist import seeds
from nfdist.config import ModelConfig
from nfdist.errors import ConfigError
from nfdist.model.halo import Halo
from nfdist.model.initialize import initialize
from nfdist.model.layers import embed
from nfdist.model.nodeformer import Draw, Output, check_features
from nfdist.model.relation import Relation
from nfdist.world import World


class Baseline(nn.Module, ABC):
    """A model of a [model] section alone, with an `input` linear and `norms`; rows of features may be sparse.

    Dropout follows the `Draw` in training mode, and there is none in evaluation mode.
    """

    needs_graph = True
    uses_dgl = True
    input: nn.Linear
    norms: nn.ModuleList
    sizes: Tensor

    def __init__(self, num_features: int, num_outputs: int, model: ModelConfig, *, seed: int = 0) -> None:
        super().__init__()
        if num_features < 1 or num_outputs < 1:
            raise ConfigError(f"a model needs input features and outputs, got {num_features} and {num_outputs}")
        self.model = model
        # Among the weights, so that a checkpoint alone says what to build.
        self.register_buffer("sizes", torch.tensor([num_features, num_outputs]))
        self.build(num_features, num_outputs)
        initialize(self, seed)

    @abstractmethod
    def build(self, num_features: int, num_outputs: int) -> None:
        """Make the layers; their weights are drawn afterwards."""

    @abstractmethod
    def logits(self, embedded: Tensor, relations: Sequence[Relation], draw: Draw) -> Tensor:
        """Logits [n, outputs] of what the input linear made of the features."""

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
        edge_scale: float = 0.0,
        world: World | None = None,
        halo: Halo | None = None,
    ) -> Output:
        """Logits of n nodes that hear each other along the edges of Â_1; each rank has a graph of its own."""
        assert halo is None or not self.needs_graph
        self.check(features, relations, draw)
        embedded = embed(self.input, features)
        with torch.autocast(embedded.device.type, enabled=False):
            return self.answer(features, embedded, relations, draw, edge_scale / (world or World()).size)

    def answer(
        self, features: Tensor, embedded: Tensor, relations: Sequence[Relation], draw: Draw, scale: float
    ) -> Output:
        """The logits, and a loss of the model's own times `scale`, this rank's share, where it has one."""
        return Output(self.logits(embedded, relations, draw), None)

    def edge_scale(self, edge_loss: float, count: int) -> float:
        """What `forward` is to scale its own loss by; most baselines have none."""
        return 0.0

    def make_norms(self, widths: Sequence[int]) -> nn.ModuleList:
        """A norm for every hidden state that `finish` makes, or none for any."""
        return nn.ModuleList(nn.LayerNorm(width) for width in widths if self.model.norm == "layer")

    def finish(self, rows: Tensor, index: int, draw: Draw) -> Tensor:
        """Hidden state `index` (from 0) of what its layer made: dropout(activation(norm(rows)))."""
        rows = self.norms[index](rows) if len(self.norms) else rows
        rows = F.elu(rows) if self.model.activation == "elu" else F.relu(rows)
        if not self.training or self.model.dropout == 0:
            return rows
        key = seeds.derive(draw.seed, "dropout", draw.step, index)
        keep, factor = seeds.keep_mask(key, draw.node_ids, rows.shape[1], self.model.dropout)
        return rows * keep * factor

    def check(self, features: Tensor, relations: Sequence[Relation], draw: Draw) -> None:
        """Refuse what the model cannot be called with."""
        name = self.model.name
        check_features(features, self.num_features, draw)
        if not self.needs_graph:
            return
        if self.uses_dgl and features.device.type != "cpu":
            raise ConfigError(f"model.name = {name} uses layers of DGL, which has no GPU code here: set run.device=cpu")
        if len(relations) != 1:
            raise ConfigError(
                f"model.name = {name} needs the relation of order 1 alone, got {len(relations)} relations"
            )
        if relations[0].adjacency.num_nodes != len(features):
            raise ConfigError(
                f"the relation has {relations[0].adjacency.num_nodes} nodes, features have {len(features)}"
            )
