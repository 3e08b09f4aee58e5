"""Predictions for nodes that training never saw, without a pass over the graph.

A new node is a query only: nobody hears it. It attends to every layer's stored summary, and hears its neighbors, and
whoever reaches these, by the states that an evaluation has left; degrees of the graph's own nodes stay as they are.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from nfdist.attention.attend import attend_to
from nfdist.evaluate.loading import TrainedModel
from nfdist.evaluate.newcomers import Newcomers, distinct
from nfdist.evaluate.states import States
from nfdist.model.layers import settle
from nfdist.store.gate import Column
from nfdist.store.hops import Hops
from nfdist.store.ranges import joined
from nfdist.store.store import Store

NODES_AT_ONCE = 1 << 10


Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Hearing:
    """Whom new nodes hear in one hop: sources[indptr[r] : indptr[r + 1]] by a weight each, and themselves by `own`.

    `totals` [n] are the sums of these weights.
    """

    indptr: Tensor
    sources: Tensor
    weights: Tensor
    own: Tensor
    totals: Tensor

    @staticmethod
    def weighted(pairs: Pairs, sent: Tensor, received: Tensor, own: Tensor) -> "Hearing":
        """Weights that are what a source sends, [pairs], times what a new node receives, [n]."""
        indptr, sources = map(torch.from_numpy, pairs)
        rows = torch.arange(len(own)).repeat_interleave(indptr.diff())
        weights = sent * received[rows]
        own = own * received
        return Hearing(indptr, sources, weights, own, own.index_add(0, rows, weights))

    def sums(self, states: Tensor, hidden: Tensor) -> Tensor:
        """What new nodes get, [n, c], from states [nodes, c] of the graph and from their own."""
        heard = F.embedding_bag(
            self.sources, states, self.indptr, mode="sum", include_last_offset=True, per_sample_weights=self.weights
        )
        return heard.addcmul_(self.own[:, None], hidden)


class Predictor:
    """A model, its states and the graph they belong to, ready for any number of new nodes."""

    def __init__(self, trained: TrainedModel, states: States, store: Store) -> None:
        model = trained.nodeformer("nfdist predict")
        self._model, self._states, self._store = model, states, store
        order = model.relation.order
        hops = Hops.open(store, max(order - 1, 0))
        self._shorter = [store, *hops.higher][: max(order - 1, 0)]
        like = model.input.weight
        layers = range(1, model.model.layers + 1)
        self._kernels = [model.evaluation_kernel(trained.evaluation_seed, layer, like) for layer in layers]

    @torch.no_grad()
    def logits(self, newcomers: Newcomers) -> Tensor:
        """Logits [n, outputs] of new nodes, each as if it were the only one."""
        starts = range(0, len(newcomers), NODES_AT_ONCE)
        parts = [self._predicted(newcomers.rows(slice(start, start + NODES_AT_ONCE))) for start in starts]
        return torch.cat(parts) if parts else self._model.output.bias.new_empty(0, self._model.output.out_features)

    def _predicted(self, newcomers: Newcomers) -> Tensor:
        model, hearings = self._model, self._hearings(newcomers)
        hidden = settle([model.embed(newcomers.features.to(model.input.weight.dtype))], model.finish(0))
        logits = model.logits(hidden, 0)
        for index, (kernel, summary) in enumerate(zip(self._kernels, self._states.summaries, strict=True), start=1):
            layer = model.layer(index)
            added = [attend_to(layer.query_map(kernel)(hidden), layer.heard(summary), kernel).outputs]
            for hearing, weight, offset in zip(hearings, *layer.relation_maps(), strict=True):
                sums = hearing.sums(self._states.hidden[index - 1].at(hearing.sources.numpy()), hidden)
                added.append(torch.addmm(torch.outer(hearing.totals, offset), sums, weight.t()))
            if layer.residual:
                added.append(hidden)
            hidden = settle(added, model.finish(index))
            logits = model.logits(hidden, index, logits)
        assert logits is not None
        return logits

    def _hearings(self, newcomers: Newcomers) -> list[Hearing]:
        """Whom new nodes hear, a hop at a time."""
        if not self._model.relation.order:
            return []
        neighbors = _without(newcomers.node_ids, (newcomers.indptr, newcomers.neighbors))
        reached = [neighbors, *(self._extended(neighbors, hop) for hop in self._shorter)]
        known = torch.from_numpy(newcomers.node_ids)
        return [self._weighted(hop, _without(newcomers.node_ids, pairs), known) for hop, pairs in enumerate(reached)]

    def _extended(self, neighbors: Pairs, hop: Store) -> Pairs:
        """Who reaches a new node by way of its neighbors, these included; `hop` has the in-edges of the one before."""
        indptr, through = neighbors
        rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        all_rows, all_sources = [rows], [through]
        for number, part in enumerate(hop.parts):
            inside = (through >= part.start) & (through < part.stop)
            starts, counts, sources = hop.in_edges_of(number, through[inside] - part.start)
            all_rows.append(np.repeat(rows[inside], counts))
            all_sources.append(sources[joined(starts, counts)])
        return distinct(np.concatenate(all_rows), np.concatenate(all_sources), len(indptr) - 1, self._store.num_nodes)

    def _weighted(self, hop: int, pairs: Pairs, known: Tensor) -> Hearing:
        """Weights 1 / sqrt(d_in d_out). A new node has a loop, and other edges that run both ways, or only to it."""
        ones = torch.ones(len(known), dtype=self._model.input.weight.dtype)
        sources = torch.from_numpy(pairs[1])
        if self._states.roots is None:
            return Hearing.weighted(pairs, ones.new_ones(len(sources)), ones, ones)
        received = (torch.from_numpy(np.diff(pairs[0])) + 1).to(ones.dtype).rsqrt()
        own = received
        if self._store.manifest.directed:
            own = torch.where(known >= 0, _roots(self._states.roots, known.clamp(min=0), hop), ones)
        return Hearing.weighted(pairs, _roots(self._states.roots, sources, hop), received, own)


def _roots(roots: Column, node_ids: Tensor, hop: int) -> Tensor:
    """What these nodes send in a hop, [k]."""
    return roots.at(node_ids.numpy())[node_ids, hop]


def _without(node_ids: NDArray[np.int64], pairs: Pairs) -> Pairs:
    """Pairs without those of a row and the node it stands for itself."""
    indptr, sources = pairs
    rows = np.repeat(np.arange(len(node_ids)), np.diff(indptr))
    kept = sources != node_ids[rows]
    return np.concatenate([[0], np.cumsum(kept)])[indptr], sources[kept]
