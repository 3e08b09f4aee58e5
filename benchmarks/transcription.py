"""NodeFormer's matrix formulation, transcribed plainly: the slow side of the benchmarks.

Whole tensors throughout: keys broadcast to [n, h, k, m], draws as [n, h, k, d], edge features gathered as [e, h, m].
It uses the weights of an nfdist model and computes the same function, which `check` confirms.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from nfdist import seeds
from nfdist.attention.kernel import Kernel
from nfdist.model.nodeformer import Draw, NodeFormer
from nfdist.model.relation import Relation
from nfdist.sparse.dgl_door import dgl


class Transcription:
    """The training step of a model, in the paper's formulation (order 1, noise, edge loss)."""

    def __init__(self, model: NodeFormer, relation: Relation) -> None:
        self.model = model
        graph = relation.adjacency
        self.sources, self.targets = graph.sources.long(), graph.targets.long()
        self.graph = dgl().graph((self.sources, self.targets), num_nodes=graph.num_nodes)
        self.graph.create_formats_()
        self.root_in = graph.in_degrees.clamp(min=1).float().rsqrt()[:, None, None]
        self.root_out = graph.out_degrees.clamp(min=1).float().rsqrt()[:, None, None]
        self.edge_weights = 1 / graph.in_degrees.float()[self.targets][:, None]

    def loss(self, features: Tensor, labels: Tensor, edge_loss: float, draw: Draw | None = None) -> Tensor:
        """Cross-entropy plus edge loss; with a draw, from the very directions and noise that nfdist would use."""
        model = self.model
        hidden = F.elu(model.norms[0](model.input(features)))
        states, edge_terms = [hidden], []
        for index in range(1, model.model.layers + 1):
            heard, log_weights = self._layer(hidden, index, draw)
            hidden = F.elu(model.norms[index](heard + hidden))
            states.append(hidden)
            edge_terms.append(-(self.edge_weights * log_weights).mean())
        logits = model.output(torch.cat(states, 1))
        return F.cross_entropy(logits, labels) + edge_loss * torch.stack(edge_terms).mean()

    def _layer(self, hidden: Tensor, index: int, draw: Draw | None) -> tuple[Tensor, Tensor]:
        layer, attention = self.model.layers[index - 1], self.model.attention
        heads, draws, channels = layer.heads, attention.noise_draws, hidden.shape[1]
        shape = (len(hidden), heads, channels)
        queries, keys, values = (part(hidden).view(shape) for part in (layer.query, layer.key, layer.value))
        if draw is None:
            directions = torch.randn(self.model.model.random_features, channels)
            noise = -torch.empty(len(hidden), heads, draws).exponential_().log()
        else:
            generator = seeds.generator(draw.seed, "directions", draw.step, index)
            directions = Kernel.draw(self.model.model.random_features, channels, 1.0, generator).directions
            key = seeds.derive(draw.seed, "noise", draw.step, index)
            noise = seeds.gumbel(key, draw.node_ids, heads * draws).view(-1, heads, draws)
        query_features = self._features(queries, directions, dims=(2,))
        key_features = self._features(keys, directions, dims=(0, 2))
        weights = torch.exp((noise - noise.amax(0)) / attention.temperature)
        noisy_keys = key_features.unsqueeze(2) * weights.unsqueeze(3)  # [n, h, k, m]
        summary = torch.einsum("nhkm,nhd->hkmd", noisy_keys, values)
        numerator = torch.einsum("nhm,hkmd->nhkd", query_features, summary)
        denominator = torch.einsum("nhm,hkm->nhk", query_features, noisy_keys.sum(0))
        heard = (numerator / denominator.unsqueeze(3)).mean(2)
        heard = heard + layer.gates[0][:, None] * self.root_in * dgl().ops.copy_u_sum(
            self.graph, values * self.root_out
        )
        products = torch.einsum("ehm,ehm->eh", query_features[self.targets], key_features[self.sources])
        normalizers = torch.einsum("nhm,hm->nh", query_features, key_features.sum(0))
        return layer.output(heard.flatten(1)), (products / normalizers[self.targets]).log()

    def _features(self, rows: Tensor, directions: Tensor, dims: tuple[int, ...]) -> Tensor:
        rows = rows * (rows.shape[2] ** -0.25 / math.sqrt(self.model.attention.temperature))
        projected = rows @ directions.t()
        peak = projected.amax(dims, keepdim=True).detach()
        return torch.exp(projected - rows.square().sum(2, keepdim=True) / 2 - peak) / math.sqrt(len(directions))
