"""Sweeps over the rows of this rank: each makes one state of a model, and what the next layer needs to know of it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nfdist.attention.attend import attend_to
from nfdist.attention.kernel import Kernel
from nfdist.attention.summary import KeySummary, summarize
from nfdist.evaluate.neighborhood import Neighborhood
from nfdist.model.layers import settle
from nfdist.model.nodeformer import NodeFormer
from nfdist.store.store import Store


@dataclass(frozen=True)
class Embedding:
    """Makes rows of the first state, from the features of nodes."""

    model: NodeFormer
    store: Store
    nodes: range

    def __call__(self, rows: slice) -> Tensor:
        node_ids = torch.arange(self.nodes.start + rows.start, self.nodes.start + rows.stop)
        features = self.store.take(node_ids).to(self.model.input.weight.dtype)
        return settle([self.model.embed(features)], self.model.finish(0))


class Hearing:
    """Makes rows of state `index` from the states before: what a node hears from all, its neighbors and itself."""

    def __init__(
        self,
        model: NodeFormer,
        index: int,
        kernel: Kernel,
        summary: KeySummary,
        neighborhood: Neighborhood,
        states: Tensor,
    ) -> None:
        layer = model.layer(index)
        self._queries, self._heard, self._finish = layer.query_map(kernel), layer.heard(summary), model.finish(index)
        self._maps, self._offsets = layer.relation_maps()
        self._residual, self._kernel = layer.residual, kernel
        self._neighborhood, self._states = neighborhood, states

    def __call__(self, rows: slice) -> Tensor:
        sums = self._neighborhood.sums(self._states, rows)  # first: they leave nothing in the caches
        hidden = self._neighborhood.load(self._states, rows)
        heard = attend_to(self._queries(hidden), self._heard, self._kernel).outputs
        if self._residual:
            heard += hidden
        self._neighborhood.add_related(heard, rows, sums, self._maps, self._offsets)
        return settle([heard], self._finish)


@dataclass(frozen=True)
class Sweep:
    """Makes rows of state `index`, adds their logits and keeps them; `kernel` is that of the layer that follows."""

    model: NodeFormer
    index: int
    make: Callable[[slice], Tensor]
    neighborhood: Neighborhood
    states: Tensor
    logits: Tensor
    kernel: Kernel | None

    def __call__(self, rows: slice) -> KeySummary | None:
        hidden = self.make(rows)
        self._add_logits(hidden, self.logits[rows])
        if self.kernel is None:
            self.states[rows] = hidden
        else:
            self.neighborhood.store(self.states, rows, hidden)
        return self.summarized(hidden)

    def summarized(self, hidden: Tensor) -> KeySummary | None:
        """What the queries of the next layer need to know of these rows, if there is one."""
        if self.kernel is None:
            return None
        return summarize(self.model.layer(self.index + 1).keys(hidden, self.kernel), hidden, self.kernel)

    def _add_logits(self, hidden: Tensor, logits: Tensor) -> None:
        made = self.model.logits(hidden, self.index, logits if self.index else None)
        if made is not None and made is not logits:
            logits.copy_(made)
