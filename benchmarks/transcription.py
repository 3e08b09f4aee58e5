"""NodeFormer's matrix formulation, transcribed plainly: the slow side of the benchmarks, and the published recipe.

Whole tensors throughout: keys broadcast to [n, h, k, m], draws as [n, h, k, d], edge features gathered as [e, h, m].
It uses the weights of an nfdist model and computes the same function, which its tests and benchmarks confirm.
"""

import math
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from nfdist import seeds
from nfdist.attention import ops
from nfdist.attention.kernel import Kernel
from nfdist.graph.relation import Relation
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw
from nfdist.model.task import Task
from nfdist.sparse.dgl_door import dgl


class Draws(Protocol):
    """Where the randomness of a forward pass comes from."""

    def layer(self, index: int, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
        """The directions [m, d] of a layer, and its noise [n, h, k] where there is any."""

    def drop(self, index: int, rows: Tensor) -> Tensor:
        """State `index` after dropout."""


class FreshDraws:
    """Drawn anew from one stream in every pass, evaluations included, as published."""

    def __init__(self, model: NodeFormer, generator: torch.Generator) -> None:
        self.model, self.generator = model, generator
        self.device, self.own = generator.device, generator

    def layer(self, index: int, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
        model, attention = self.model.model, self.model.attention
        kernel = Kernel.draw(model.random_features, model.channels, 1.0, self.generator, dtype=hidden.dtype)
        directions = kernel.directions.to(hidden.device)
        if not self.model.training or attention.kind == "softmax":
            return directions, None
        empty = hidden.new_empty(len(hidden), model.heads, attention.noise_draws)
        return directions, -empty.exponential_(generator=self._generator_of(hidden)).log()

    def drop(self, index: int, rows: Tensor) -> Tensor:
        rate = self.model.model.dropout
        if not self.model.training or rate == 0:
            return rows
        keep = torch.empty_like(rows).uniform_(generator=self._generator_of(rows)) >= rate
        return rows * keep / (1 - rate)

    def _generator_of(self, rows: Tensor) -> torch.Generator:
        """Directions come from the CPU; on a device all else is drawn there."""
        if rows.device != self.device:
            self.device, self.own = rows.device, torch.Generator(rows.device).manual_seed(self.generator.initial_seed())
        return self.own


class OwnDraws:
    """The very directions, noise and masks that nfdist would use."""

    def __init__(self, model: NodeFormer, draw: Draw) -> None:
        self.model, self.draw = model, draw

    def layer(self, index: int, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
        kernel, noise = self.model.randomness(self.draw, index, hidden)
        return kernel.directions, noise

    def drop(self, index: int, rows: Tensor) -> Tensor:
        rate = self.model.model.dropout
        if not self.model.training or rate == 0:
            return rows
        key = seeds.derive(self.draw.seed, "dropout", self.draw.step, index)
        keep, scale = ops.keep_mask(key, self.draw.node_ids, rows.shape[1], rate)
        return rows * keep * scale


class Hop:
    """The sums of one order of the relational bias."""

    def __init__(self, relation: Relation) -> None:
        graph = relation.adjacency
        self.sources, self.targets = graph.sources.long(), graph.targets.long()
        self.graph = None
        if self.sources.is_cpu:  # where DGL's sums are the fastest; its releases have no others
            self.graph = dgl().graph((self.sources, self.targets), num_nodes=graph.num_nodes)
            self.graph.create_formats_()
        dtype = relation.edge_weights.dtype
        self.root_in = graph.in_degrees.clamp(min=1).to(dtype).rsqrt()[:, None, None]
        self.root_out = graph.out_degrees.clamp(min=1).to(dtype).rsqrt()[:, None, None]
        self.edge_weights = 1 / graph.in_degrees.to(dtype)[self.targets][:, None]

    def sums(self, values: Tensor) -> Tensor:
        weighted = values * self.root_out
        if self.graph is None:
            return self.root_in * torch.zeros_like(values).index_add(0, self.targets, weighted[self.sources])
        sums: Tensor = self.root_in * dgl().ops.copy_u_sum(self.graph, weighted)
        return sums


class Transcription:
    """A model in the paper's formulation; the first relation's edges are those of the edge loss."""

    def __init__(self, model: NodeFormer, *relations: Relation, seed: int = 0) -> None:
        self.model = model
        self.fresh = FreshDraws(model, seeds.generator(seed, "transcription"))
        self.hops = [Hop(relation) for relation in relations]

    def loss(
        self, features: Tensor, labels: Tensor, edge_loss: float, draw: Draw | None = None, kind: str = "single"
    ) -> Tensor:
        """Supervised loss of what is labeled (from 0) plus edge loss; with a draw, of nfdist's own randomness."""
        draws = self.fresh if draw is None else OwnDraws(self.model, draw)
        logits, edge_weights = self.forward(features, draws, with_edges=edge_loss > 0)
        loss = Task(kind, logits.shape[1]).loss(logits, labels.clamp(min=-1)).mean
        if not edge_weights:
            return loss
        terms = [-(self.hops[0].edge_weights * weights.log()).mean() for weights in edge_weights]
        return loss + edge_loss * torch.stack(terms).mean()

    def forward(self, features: Tensor, draws: Draws, with_edges: bool = True) -> tuple[Tensor, list[Tensor]]:
        """Logits, and the noise-free weight [e, h] of every edge in each layer."""
        model, config = self.model, self.model.model
        hidden = self._finish(model.input(features), 0, draws)
        states, edge_weights = [hidden], []
        for index in range(1, config.layers + 1):
            heard, weights = self._layer(hidden, index, draws, with_edges)
            hidden = self._finish(heard + hidden if config.residual else heard, index, draws)
            states.append(hidden)
            edge_weights += [] if weights is None else [weights]
        logits: Tensor = model.output(torch.cat(states, 1) if config.jumping_knowledge else hidden)
        return logits, edge_weights

    def _finish(self, rows: Tensor, index: int, draws: Draws) -> Tensor:
        rows = self.model.norms[index](rows) if len(self.model.norms) else rows
        rows = F.elu(rows) if index == 0 or self.model.model.activation == "elu" else rows
        return draws.drop(index, rows)

    def _layer(self, hidden: Tensor, index: int, draws: Draws, with_edges: bool) -> tuple[Tensor, Tensor | None]:
        layer = self.model.layer(index)
        shape = (len(hidden), layer.heads, hidden.shape[1])
        queries, keys, values = (part(hidden).view(shape) for part in (layer.query, layer.key, layer.value))
        directions, noise = draws.layer(index, hidden)
        query_features = self._features(queries, directions, dims=(2,))
        key_features = self._features(keys, directions, dims=(0, 2))
        noisy_keys = key_features.unsqueeze(2)  # [n, h, k, m]
        if noise is not None:
            weights = torch.exp((noise - noise.amax(0)) / self._temperature)
            noisy_keys = noisy_keys * weights.unsqueeze(3)
        summary = torch.einsum("nhkm,nhd->hkmd", noisy_keys, values)
        numerator = torch.einsum("nhm,hkmd->nhkd", query_features, summary)
        denominator = torch.einsum("nhm,hkm->nhk", query_features, noisy_keys.sum(0))
        heard = (numerator / denominator.unsqueeze(3)).mean(2)
        gates = layer.gates.sigmoid() if layer.gate == "sigmoid" else layer.gates
        for hop, gate in zip(self.hops, gates, strict=True):
            heard = heard + gate[:, None] * hop.sums(values)
        joined = heard.mean(1) if layer.output is None else layer.output(heard.flatten(1))
        return joined, self._edge_weights(query_features, key_features) if with_edges and self.hops else None

    def _edge_weights(self, query_features: Tensor, key_features: Tensor) -> Tensor:
        sources, targets = self.hops[0].sources, self.hops[0].targets
        products = torch.einsum("ehm,ehm->eh", query_features[targets], key_features[sources])
        normalizers = torch.einsum("nhm,hm->nh", query_features, key_features.sum(0))
        return products / normalizers[targets]

    def _features(self, rows: Tensor, directions: Tensor, dims: tuple[int, ...]) -> Tensor:
        rows = rows * (rows.shape[2] ** -0.25 / math.sqrt(self._temperature))
        projected = rows @ directions.t()
        peak = projected.amax(dims, keepdim=True).detach()
        features = torch.exp(projected - rows.square().sum(2, keepdim=True) / 2 - peak) / math.sqrt(len(directions))
        return features + self.model.attention.epsilon

    @property
    def _temperature(self) -> float:
        attention = self.model.attention
        return attention.temperature if self.model.training else attention.eval_temperature or attention.temperature
