"""IDGL (Chen et al., 2020): a graph learned in rounds, from the features first and then from the hidden states it made.

A_t      the affinity of the features (t = 1) or of the hidden states of round t - 1, for all nodes or for anchors
Ã_t      λ Â + (1 - λ) (η A_t + (1 - η) A_1), of which Â is the input graph
hidden   dropout(activation(norm(Ã_t features W)));  logits  Ã_t hidden W'

Rounds end when A_t converges. The loss is the mean over the rounds, of labels and of the graphs' roughness alike.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from nfdist import seeds
from nfdist.attention import ops
from nfdist.config import ModelConfig
from nfdist.errors import ConfigError
from nfdist.graph.neighbors import Propagator
from nfdist.graph.relation import Relation
from nfdist.model.baselines.affinity import Affinity, roughness, square_distances
from nfdist.model.baselines.baseline import Baseline
from nfdist.model.linear import UndrawnLinear
from nfdist.model.protocol import Draw, Output

MAX_NODES = 12_000  # without anchors, when a round holds about 0.6 GiB
LATEST_SHARE = 0.1  # η
TOLERANCE = 4e-5  # of the first affinity, in squares, below which another has converged


class IDGL(Baseline):
    """Two convolutions over the input graph and a learned one; `heads` are those of the similarity.

    With anchors the learned graph is linear in the nodes. They are drawn by node id, anew in every training step and
    from the seed alone in evaluation.
    """

    has_auxiliary_loss = True
    inductive = False

    def make_layers(self, num_features: int, num_outputs: int) -> None:
        model = self.model
        self.input = self.make_input(num_features, model.channels)
        self.output = UndrawnLinear(model.channels, num_outputs)
        # Linear layers without a bias, for the start of their weights alone: these are the scales of the channels.
        self.feature_scales = UndrawnLinear(num_features, model.heads, bias=False)
        self.hidden_scales = UndrawnLinear(model.channels, model.heads, bias=False)
        self.norms = self.make_norms([model.channels])

    @classmethod
    def check_settings(cls, model: ModelConfig) -> None:
        if model.layers != 2:
            raise ConfigError(f"model.layers must be 2 for idgl, got {model.layers}")

    def answer(
        self, features: Tensor, embedded: Tensor, relations: Sequence[Relation], draw: Draw, scale: float
    ) -> Output:
        """Logits of the last round; with a scale, also that times the roughness of the learned graphs."""
        if self.model.idgl.graph_share == 1 or len(features) == 0:
            return Output(self.logits(embedded, relations, draw), None)
        return self._learn(features, embedded, relations, draw, scale)

    def logits(self, embedded: Tensor, relations: Sequence[Propagator], draw: Draw) -> Tensor:
        """Logits over the input graph alone."""
        return self._convolve(embedded, relations[0].propagate, draw)[1]

    def check(self, features: Tensor, relations: Sequence[Relation], draw: Draw) -> None:
        super().check(features, relations, draw)
        if self.model.idgl.anchors == 0 and len(features) > MAX_NODES:
            raise ConfigError(
                f"model.name = idgl compares every pair of {len(features):,} nodes, {4e-9 * len(features) ** 2:.1f} GB "
                f"a round: set model.idgl.anchors, to 500 for instance, for more than {MAX_NODES:,} nodes"
            )

    def _learn(
        self, features: Tensor, embedded: Tensor, relations: Sequence[Relation], draw: Draw, scale: float
    ) -> Output:
        anchors = self._anchors(draw)
        learn = partial(Affinity.learn, threshold=self.model.idgl.similarity_threshold, anchored=anchors is not None)
        points = _dense(features, anchors).to(embedded.dtype)
        rows = points if anchors is None and features.layout != torch.sparse_csr else features
        first = learn(rows, points, self.feature_scales.weight)
        distances = square_distances(rows if anchors is None else points, points) if scale else None
        affinity, converged, rounds, rough = first, False, list[Tensor](), embedded.new_zeros(())
        while True:
            mix = partial(self._mix, relations, first, affinity)
            hidden, logits = self._convolve(embedded, mix, draw)
            rounds.append(logits)
            rough = rough if distances is None else rough + roughness(affinity.graph(), distances)
            if converged or len(rounds) > self.model.idgl.refinements:
                break
            before = affinity
            affinity = learn(hidden, hidden if anchors is None else hidden[anchors], self.hidden_scales.weight)
            converged = affinity.converged(before, first, TOLERANCE)
        return Output(rounds[-1], scale * rough / len(rounds) if scale else None, tuple(rounds[:-1]))

    def _mix(self, relations: Sequence[Relation], first: Affinity, latest: Affinity, rows: Tensor) -> Tensor:
        """Ã_t rows, [n, c]."""
        learned = first.spread(rows)
        if latest is not first:
            learned = LATEST_SHARE * latest.spread(rows) + (1 - LATEST_SHARE) * learned
        share = self.model.idgl.graph_share
        return share * relations[0].propagate(rows) + (1 - share) * learned if share else learned

    def _convolve(self, embedded: Tensor, mix: Callable[[Tensor], Tensor], draw: Draw) -> tuple[Tensor, Tensor]:
        """Hidden states [n, c] and logits over a graph."""
        hidden = self.activate(mix(embedded), 0, draw)
        return hidden, mix(self.output(hidden))

    def _anchors(self, draw: Draw) -> Tensor | None:
        """The rows of the anchors: the nodes with the largest random numbers; None where all pairs are compared."""
        if self.model.idgl.anchors == 0:
            return None
        key = seeds.derive(draw.seed, "anchors", draw.step if self.training else "evaluation")
        noise = ops.gumbel(key, draw.node_ids, 1, torch.float64)[:, 0]
        return noise.topk(min(self.model.idgl.anchors, len(noise))).indices


def _dense(features: Tensor, rows: Tensor | None) -> Tensor:
    """All features or some rows of them, dense even where these are sparse."""
    if rows is None:
        return features.to_dense() if features.layout == torch.sparse_csr else features
    if features.layout != torch.sparse_csr:
        return features[rows]
    starts, counts = features.crow_indices()[rows], features.crow_indices().diff()[rows]
    places = torch.arange(len(rows), device=rows.device).repeat_interleave(counts)
    entries = torch.arange(len(places), device=rows.device) + (starts - counts.cumsum(0) + counts)[places]
    dense = features.values().new_zeros(len(rows), features.shape[1])
    dense[places, features.col_indices()[entries]] = features.values()[entries]
    return dense
