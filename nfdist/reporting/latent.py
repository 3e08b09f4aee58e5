"""Attention of a trained NodeFormer over its whole graph, from the states that an evaluation left.

A weight is a product of two shares, so that nothing overflows and every weight is exact whatever else is looked at:

    pi(u, v) = Σ_m  share of u's weight that goes through feature m  x  share of the feature's mass that is v's
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdist.attention.attend import attend_to, key_logs_met
from nfdist.attention.kernel import Kernel
from nfdist.devices import exact_products
from nfdist.evaluation.states import States
from nfdist.graph.neighbors import SummedNeighbors
from nfdist.graph.split import split_of, training_labels
from nfdist.model.gaps import fill_gaps
from nfdist.model.loading import TrainedModel
from nfdist.store.store import Store


class LatentAttention:
    """Layers are counted from 1, node ids are int64 arrays [k]; weights are free of noise."""

    def __init__(self, trained: TrainedModel, states: States, store: Store) -> None:
        self._model, self._states, self._store = trained.nodeformer("attention"), states, store
        self._dtype = trained.dtype
        seed, like = trained.evaluation_seed, self._model.input.weight
        self._kernels = [self._model.evaluation_kernel(seed, layer, like) for layer in self.layers]
        takes_labels = self._model.label_input is not None
        self._split = split_of(store, trained.config.data, trained.seed) if takes_labels else None

    @property
    def layers(self) -> range:
        return range(1, self._model.model.layers + 1)

    @torch.no_grad()
    @exact_products()
    def queries(self, layer: int, node_ids: NDArray[np.int64]) -> Tensor:
        """Which share of each node's weight goes through each feature, [q, h, m]; over the features these sum to 1."""
        kernel, summary = self._kernels[layer - 1], self._states.summaries[layer - 1]
        features = self._model.layer(layer).query_map(kernel)(self._hidden(layer, node_ids))
        normalizers = attend_to(features, summary, kernel).log_normalizers
        return (features + self._log_mass(layer, kernel) - normalizers[..., None]).exp()

    @torch.no_grad()
    @exact_products()
    def keys(self, layer: int, node_ids: NDArray[np.int64]) -> Tensor:
        """Which share of each feature's mass is each node's, [n, h, m]; over all nodes of the graph these sum to 1."""
        kernel, summary = self._kernels[layer - 1], self._states.summaries[layer - 1]
        features = self._model.layer(layer).keys(self._hidden(layer, node_ids), kernel)
        return (key_logs_met(features, summary, kernel) - self._log_mass(layer, kernel)).exp()

    def weights(self, layer: int, queries: NDArray[np.int64], keys: NDArray[np.int64]) -> Tensor:
        """Attention weights [q, n] of some nodes on others, averaged over the heads."""
        return pair_weights(self.queries(layer, queries), self.keys(layer, keys)).mean(0)

    def _log_mass(self, layer: int, kernel: Kernel) -> Tensor:
        return self._states.summaries[layer - 1].for_queries(kernel).noise_free_log_mass

    def _hidden(self, layer: int, node_ids: NDArray[np.int64]) -> Tensor:
        """The states [k, c] that a layer sees: stored ones, or made anew where no layer looks at another node."""
        if len(self._states.hidden) == len(self.layers):
            column = self._states.hidden[layer - 1]
            return column.at(node_ids).index_select(0, torch.from_numpy(node_ids))
        rows = torch.from_numpy(node_ids)
        features = fill_gaps(self._store.take(rows).to(self._dtype), self._model.feature_means)
        labels = None if self._split is None else training_labels(self._store, self._split, rows)
        hidden = self._model.first_state(features, labels)
        for index in range(1, layer):
            bound = self._model.bind(index, self._kernels[index - 1], self._states.summaries[index - 1])
            hidden = bound(hidden, SummedNeighbors([], hidden[:, :0]))
        return hidden


def pair_weights(queries: Tensor, keys: Tensor) -> Tensor:
    """Attention weights [h, q, n] of the shares of queries [q, h, m] and keys [n, h, m]."""
    return torch.bmm(queries.transpose(0, 1), keys.permute(1, 2, 0))
