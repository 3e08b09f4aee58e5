"""A graph branch: convolutions beside the attention, whose logits are mixed with those of the attention.

    g_0 = dropout(elu(norm(input linear)));   g_i = dropout(elu(norm(Â_1 (g W + b) + g)));   logits = output linear

Without the residual g_0 is the input linear alone, and g_i has no g beside the sum: a node's own features then count no
more than a neighbor's, as in a GCN, and cannot be learned by heart.
As a layer of NodeFormer, each is a function of rows and their `Neighbors`, whoever provides them.
"""

import torch
from torch import Tensor, nn

from nfdist.graph.neighbors import Neighbors
from nfdist.model.epilogue import Epilogue, add_norm
from nfdist.model.label_input import LabelInput, label_terms
from nfdist.model.linear import InputLinear, PreparedRows, UndrawnLinear


class GraphBranch(nn.Module):
    """`layers` convolutions of `channels`; `share` is the branch's part of the logits, 0 for one that is learned."""

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        channels: int,
        layers: int,
        share: float,
        *,
        residual: bool,
        norm: bool,
        scaled: bool,
        label_inputs: bool = False,
    ) -> None:
        super().__init__()
        self.num_layers, self._residual = layers, residual
        self.label_input = LabelInput(num_outputs, channels) if label_inputs else None
        self.input = InputLinear(num_features, channels, standardize=scaled)
        self.convolutions = nn.ModuleList(UndrawnLinear(channels, channels) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(layers + residual if norm else 0))
        self.output = UndrawnLinear(channels, num_outputs)
        self._fixed_share = share
        if share == 0:
            self.mixing = nn.Parameter(torch.zeros(()))  # through a sigmoid: one half

    def norm(self, index: int) -> nn.LayerNorm | None:
        """The norm of state `index`, if there is any."""
        place = index if self._residual else index - 1
        norm = self.norms[place] if self.norms and place >= 0 else None
        assert norm is None or isinstance(norm, nn.LayerNorm)
        return norm

    def first_state(self, rows: PreparedRows, epilogue: Epilogue, labels: Tensor | None = None) -> Tensor:
        """State 0 [n, c] of rows of features, and of labels that are given as inputs."""
        embedded = self.input.product(rows)
        terms = [embedded, *label_terms(self.label_input, labels, len(embedded))]
        return add_norm(terms, epilogue if self._residual else Epilogue(None, elu=False, dropout=None))

    def related(self, index: int, hidden: Tensor, neighbors: Neighbors) -> Tensor:
        """Â_1 (g W + b) of convolution `index`, from 1, [n, c]."""
        convolution = self.convolutions[index - 1]
        assert isinstance(convolution, nn.Linear)
        return neighbors.related(hidden, convolution.weight[None], convolution.bias[None])

    def next_state(self, index: int, hidden: Tensor, neighbors: Neighbors, epilogue: Epilogue) -> Tensor:
        """State `index`, from 1, of rows with the state before, by their neighbors' states before."""
        related = self.related(index, hidden, neighbors)
        return add_norm([related, hidden] if self._residual else [related], epilogue)

    def mix(self, logits: Tensor, branch_logits: Tensor) -> Tensor:
        """The logits of the model, of those of the attention and of the branch [n, outputs]."""
        return torch.lerp(logits, branch_logits, self._fixed_share or self.mixing.sigmoid())
