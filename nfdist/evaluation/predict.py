"""Predictions for nodes that training never saw, without a pass over the graph.

A new node is a query only: nobody attends to it. It attends to every layer's stored summary and sums its neighbors, and
whoever reaches these, by the states that an evaluation has left; degrees of the graph's own nodes stay as they are.
Where the evaluation smoothed its answers, a new node's are smoothed by what its neighbors had before the last step.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdist.evaluation.new_nodes import NewNodes, distinct
from nfdist.evaluation.smoothing import Rows
from nfdist.evaluation.states import States
from nfdist.graph.hop import EdgeSegment, Hop
from nfdist.graph.neighbors import SummedNeighbors
from nfdist.graph.relation import degree_factors
from nfdist.graph.split import split_of
from nfdist.model.loading import TrainedModel
from nfdist.model.task import Task
from nfdist.store.gate import Column
from nfdist.store.hops import Hops
from nfdist.store.ranges import joined
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import Store

NODES_AT_ONCE = 1 << 10


Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


class StatesPredictor:
    """A model, its states and the graph they belong to, ready for any number of new nodes."""

    def __init__(self, trained: TrainedModel, states: States, store: Store) -> None:
        model = trained.nodeformer("nfdist predict")
        self._trained, self._task = trained, Task(store.task, store.num_classes)
        self._model, self._states, self._store = model, states, store
        order = model.relation.order
        hops = Hops.open(store, max(order - 1, 0))
        self._shorter = [store, *hops.higher][: max(order - 1, 0)]
        like = model.input.weight
        layers = range(1, model.model.layers + 1)
        self._kernels = [model.evaluation_kernel(trained.evaluation_seed, layer, like) for layer in layers]

    @torch.no_grad()
    def logits(self, new_nodes: NewNodes, nodes_at_once: int = NODES_AT_ONCE) -> Tensor:
        """Logits [n, outputs] of new nodes, each as if it were the only one."""
        starts = range(0, len(new_nodes), nodes_at_once)
        parts = [self._predicted(new_nodes.rows(slice(start, start + nodes_at_once))) for start in starts]
        return torch.cat(parts) if parts else self._model.output.bias.new_empty(0, self._model.output.out_features)

    def _predicted(self, new_nodes: NewNodes) -> Tensor:
        model, hops = self._model, self._hops(new_nodes)
        totals = [_totals(hop) for hop in hops]
        features = new_nodes.features.to(model.input.weight.dtype)
        hidden = model.first_state(features)
        logits = model.logits(hidden, 0)
        for index, (kernel, summary) in enumerate(zip(self._kernels, self._states.summaries, strict=True), start=1):
            neighbors = self._neighbors(hops, totals, self._states.hidden[index - 1 : index], hidden)
            hidden = model.bind(index, kernel, summary)(hidden, neighbors)
            logits = model.logits(hidden, index, logits)
        assert logits is not None
        if model.branch is not None:
            logits = model.branch.mix(logits, self._branch_logits(features, hops, totals))
        return self._smoothed(logits, new_nodes)

    def _branch_logits(self, features: Tensor, hops: Sequence[Hop], totals: Sequence[Tensor]) -> Tensor:
        model, branch = self._model, self._model.branch
        assert branch is not None
        hidden = branch.first_state(features, model.branch_epilogue(branch, 0))
        for index in range(1, branch.num_layers + 1):
            neighbors = self._neighbors(hops[:1], totals[:1], self._states.branch[index - 1 : index], hidden)
            hidden = branch.next_state(index, hidden, neighbors, model.branch_epilogue(branch, index))
        logits: Tensor = branch.output(hidden)
        return logits

    def _smoothed(self, logits: Tensor, new_nodes: NewNodes) -> Tensor:
        """Logits as an evaluation of the graph smooths them, if it does."""
        smoothing = self._states.smoothing
        if smoothing is None:
            return logits
        node_ids = torch.from_numpy(new_nodes.node_ids)
        of_graph, training = node_ids.clamp(min=0), node_ids >= 0
        if training.any():
            training &= self._split[of_graph] == TRAIN
        pairs = _without(new_nodes.node_ids, (new_nodes.indptr, new_nodes.neighbors))
        known = Rows(self._task, logits, self._store.labels(of_graph), training)
        return smoothing.logits(known, node_ids, self._hop(0, pairs, node_ids, smoothing.roots))

    @cached_property
    def _split(self) -> Tensor:
        return split_of(self._store, self._trained.config.data, self._trained.seed)

    def _neighbors(
        self, hops: Sequence[Hop], totals: Sequence[Tensor], seen: Sequence[Column], hidden: Tensor
    ) -> SummedNeighbors:
        """What new nodes get from the states that a layer has seen in the evaluation, and from their own."""
        everyone = slice(0, len(hidden))
        sums = [hop.sums(everyone, seen[0].at(hop.segments[0].sources.numpy()), hidden) for hop in hops]
        return SummedNeighbors(sums, torch.stack(list(totals), 1) if hops else hidden[:, :0])

    def _hops(self, new_nodes: NewNodes) -> list[Hop]:
        """The edges to new nodes, a hop at a time."""
        if not self._model.relation.order:
            return []
        neighbors = _without(new_nodes.node_ids, (new_nodes.indptr, new_nodes.neighbors))
        reached = [neighbors, *(self._extended(neighbors, hop) for hop in self._shorter)]
        known = torch.from_numpy(new_nodes.node_ids)
        roots = self._states.roots
        return [
            self._hop(index, _without(new_nodes.node_ids, pairs), known, roots) for index, pairs in enumerate(reached)
        ]

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

    def _hop(self, index: int, pairs: Pairs, known: Tensor, factors: Column | None) -> Hop:
        """A new node has a loop, and other edges that run both ways, or in a directed graph only to it."""
        indptr, sources = map(torch.from_numpy, pairs)
        segments = [EdgeSegment(0, indptr, sources)]
        ones = torch.ones(len(known), dtype=self._model.input.weight.dtype)
        if factors is None:
            return Hop(segments, ones)
        received = degree_factors(indptr.diff() + 1, ones.dtype)
        sent = received
        if self._store.manifest.directed:
            sent = torch.where(known >= 0, factors.at(known.clamp(min=0).numpy())[known.clamp(min=0), index], ones)
        return Hop(segments, sent, factors.at(sources.numpy())[:, index], received)


def _totals(hop: Hop) -> Tensor:
    """The sums [n] of the weights of a hop of new nodes."""
    segment = hop.segments[0]
    assert hop.loops is not None
    weights = hop.loops.new_ones(len(segment.sources))
    if hop.source_factors is not None:
        weights = hop.source_factors.index_select(0, segment.sources)
    totals = hop.loops.index_add(0, torch.arange(len(hop.loops)).repeat_interleave(segment.indptr.diff()), weights)
    return totals if hop.target_factors is None else totals * hop.target_factors


def _without(node_ids: NDArray[np.int64], pairs: Pairs) -> Pairs:
    """Pairs without those of a row and the node it stands for itself."""
    indptr, sources = pairs
    rows = np.repeat(np.arange(len(node_ids)), np.diff(indptr))
    kept = sources != node_ids[rows]
    return np.concatenate([[0], np.cumsum(kept)])[indptr], sources[kept]
