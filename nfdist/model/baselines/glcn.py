"""GLCN (Jiang et al., 2019): one graph learned from differences of features, and two convolutions over it.

h        P x, and weights S_ts = softmax over s of relu(a · |h_t - h_s|): over the input graph's edges and loops, or
         over all nodes where relation.order is 0
hidden   dropout(activation(norm(S x W)));  logits  S hidden W'
loss     Σ_ts S_ts |h_t - h_s|^2 + γ S_ts^2, a node, beside that of labels

The paper's other term, |S - A|^2, is the same as its |S|^2 but for a constant: a row of S sums to 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from nfdist.config import Config, ModelConfig
from nfdist.errors import ConfigError
from nfdist.graph.neighbors import Propagator
from nfdist.graph.relation import Relation
from nfdist.model.baselines.baseline import Baseline
from nfdist.model.baselines.compared_pairs import AllPairs, EdgePairs, Pairs, compare
from nfdist.model.linear import UndrawnLinear
from nfdist.model.protocol import Draw, Output, check_features


@dataclass(frozen=True)
class LearnedGraph:
    """S, by the weights [pairs] of pairs."""

    pairs: Pairs
    weights: Tensor

    def propagate(self, rows: Tensor) -> Tensor:
        return self.pairs.spread(self.weights, rows)


class GLCN(Baseline):
    """Two convolutions without biases, as published, over a learned graph."""

    orders = range(2)
    has_auxiliary_loss = True
    heeds_weights = False
    inductive = False

    def make_layers(self, num_features: int, num_outputs: int) -> None:
        channels, width = self.model.channels, self.model.glcn.width
        self.input = self.make_input(num_features, width + channels, bias=False)  # P and W
        self.comparison = UndrawnLinear(width, 1, bias=False)  # a
        self.output = UndrawnLinear(channels, num_outputs, bias=False)
        self.norms = self.make_norms([channels])

    @classmethod
    def check_settings(cls, model: ModelConfig) -> None:
        if model.layers != 2:
            raise ConfigError(f"model.layers must be 2 for glcn, got {model.layers}")

    @staticmethod
    def pair_numbers(config: Config, *, training: bool) -> float:
        """Scores, what becomes of them, weights and distances of all pairs, and gradients of them."""
        return 0.0 if config.relation.order else 6.0 if training else 4.0

    def check(self, features: Tensor, relations: Sequence[Relation], draw: Draw) -> None:
        if relations:
            super().check(features, relations, draw)
        else:
            check_features(features, self.num_features, draw)

    def answer(
        self, features: Tensor, embedded: Tensor, relations: Sequence[Relation], draw: Draw, scale: float
    ) -> Output:
        """The logits; with a scale, also that times the loss of the learned graph."""
        count, width = len(features), self.model.glcn.width
        pairs: Pairs = EdgePairs(relations[0].adjacency) if relations else AllPairs(count, embedded.device)
        scores, distances = compare(embedded[:, :width], self.comparison.weight[0], pairs)
        weights = pairs.softmax(scores.relu())
        logits = self.logits(embedded[:, width:], [LearnedGraph(pairs, weights)], draw)
        if scale == 0 or count == 0:
            return Output(logits, None)
        uneven = weights @ distances + self.model.glcn.sparsity * weights.square().sum()
        return Output(logits, scale * uneven / count)

    def logits(self, embedded: Tensor, relations: Sequence[Propagator], draw: Draw) -> Tensor:
        """Logits over a learned graph, of features that went through W."""
        hidden = self.activate(relations[0].propagate(embedded), 0, draw)
        return relations[0].propagate(self.output(hidden))
