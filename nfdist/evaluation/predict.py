"""Predictions for nodes that training never saw, without a pass over the graph.

A new node is a query only: nobody of the graph attends to it. It attends to every layer's stored summary and sums its
neighbors, and whoever reaches these, by the states that an evaluation has left, or by their partial sums if relations
are powers; degrees of the graph's own nodes stay as they are. New nodes that are predicted together hear each other
along the edges among them. Where the evaluation smoothed its answers, a new node's are smoothed by what its neighbors
had before the last step. Where it gave training labels as inputs, a row that stands for a training node is given its
own, and no other row has any. A baseline is asked for its logits as ever, and sums stored rows of the neighbors. A GPU
works out the layers, and the CPU the sums over neighbors, whose states are in files.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from nfdist.attention.kernel import Kernel
from nfdist.devices import is_gpu, placed
from nfdist.evaluation.new_nodes import NewNodes
from nfdist.evaluation.placement import CPU
from nfdist.evaluation.smoothing import Rows
from nfdist.evaluation.states import States
from nfdist.evaluation.stored_relation import StoredRelation, stored_sums
from nfdist.graph.hop import EdgeSegment, Hop
from nfdist.graph.neighbors import Neighbors, PowerNeighbors, SummedNeighbors
from nfdist.graph.relation import degree_factors
from nfdist.graph.split import known_labels, split_of
from nfdist.model.baselines.baseline import Baseline
from nfdist.model.gaps import fill_gaps
from nfdist.model.loading import TrainedModel
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw
from nfdist.model.task import Task
from nfdist.sparse.csr import as_tensor
from nfdist.store.gate import Column
from nfdist.store.hops import Hops
from nfdist.store.pairs import Pairs, distinct, followed, others, rows_of_pairs, without
from nfdist.store.ranges import joined
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import Store

NODES_AT_ONCE = 1 << 10
GPU_NODES_AT_ONCE = 1 << 14  # a guess: so that launches are few


class StatesPredictor:
    """A model, its states and the graph they belong to, ready for any number of new nodes."""

    def __init__(self, trained: TrainedModel, states: States, store: Store, device: torch.device = CPU) -> None:
        trained.check_inductive()
        model, self._relation = placed(trained.model, device), trained.config.relation
        self._device, self._summaries = device, [one.to(device) for one in states.summaries]
        self._trained, self._task = trained, Task(store.task, store.num_classes)
        self._model, self._states, self._store = model, states, store
        self._order = self._relation.num_patterns if model.needs_graph else 0
        shorter = max(self._order - 1, 0)
        kept = Hops.open(store, shorter, weighted=self._relation.weights).higher
        self._shorter = [store, *(one.local for one in kept)][:shorter]
        self._kernels: list[Kernel] = []
        if isinstance(model, NodeFormer):
            like = model.input.weight
            layers = range(1, model.model.layers + 1)
            self._kernels = [model.evaluation_kernel(trained.evaluation_seed, layer, like) for layer in layers]

    @torch.no_grad()
    def logits(self, new_nodes: NewNodes, nodes_at_once: int | None = None) -> Tensor:
        """Logits [n, outputs] of new nodes, each as if it were the only one, unless they are together."""
        nodes_at_once = nodes_at_once or (GPU_NODES_AT_ONCE if is_gpu(self._device) else NODES_AT_ONCE)
        if new_nodes.among is not None:
            return self._predicted(new_nodes)
        starts = range(0, len(new_nodes), nodes_at_once)
        parts = [self._predicted(new_nodes.rows(slice(start, start + nodes_at_once))) for start in starts]
        return torch.cat(parts) if parts else torch.empty(0, self._model.num_outputs, dtype=self._trained.dtype)

    def _predicted(self, new_nodes: NewNodes) -> Tensor:
        model, hops = self._model, self._hops(new_nodes)
        features = as_tensor(new_nodes.features).to(model.input.weight.dtype).to(self._device)
        features = fill_gaps(features, model.feature_means)
        if isinstance(model, NodeFormer):
            labels = None if model.label_input is None else self._given(new_nodes).to(self._device)
            return self._smoothed(self._attended(model, features, labels, hops), new_nodes)
        assert isinstance(model, Baseline)
        relations = [StoredRelation(hop, self._states.hidden) for hop in hops]
        draw = Draw(self._trained.evaluation_seed, 0, torch.from_numpy(new_nodes.node_ids).to(self._device))
        return self._smoothed(model.logits(model.input(features), relations, draw), new_nodes)

    def _attended(
        self, model: NodeFormer, features: Tensor, labels: Tensor | None, hops: Sequence[list[Hop]]
    ) -> Tensor:
        totals = [_totals(hop).to(self._device) for hop in hops]
        hidden = model.first_state(features, labels)
        logits = model.logits(hidden, 0)
        for index, (kernel, summary) in enumerate(zip(self._kernels, self._summaries, strict=True), start=1):
            neighbors = self._layer_neighbors(index, hops, totals, hidden)
            hidden = model.bind(index, kernel, summary)(hidden, neighbors)
            logits = model.logits(hidden, index, logits)
        assert logits is not None
        if model.branch is not None:
            logits = model.branch.mix(logits, self._branch_logits(model, features, labels, hops, totals))
        return logits

    def _branch_logits(
        self,
        model: NodeFormer,
        features: Tensor,
        labels: Tensor | None,
        hops: Sequence[list[Hop]],
        totals: Sequence[Tensor],
    ) -> Tensor:
        branch = model.branch
        assert branch is not None
        hidden = branch.first_state(branch.input.prepare(features), model.branch_epilogue(branch, 0), labels)
        for index in range(1, branch.num_layers + 1):
            neighbors = self._neighbors(hops[:1], totals[:1], self._states.branch[index - 1 : index], hidden)
            hidden = branch.next_state(index, hidden, neighbors, model.branch_epilogue(branch, index))
        logits: Tensor = branch.output(hidden)
        return logits

    def _smoothed(self, logits: Tensor, new_nodes: NewNodes) -> Tensor:
        """Logits as an evaluation of the graph smooths them, if it does, on the CPU."""
        smoothing, logits = self._states.smoothing, logits.cpu()
        if smoothing is None:
            return logits
        node_ids = torch.from_numpy(new_nodes.node_ids)
        known = Rows(self._task, logits, *self._labels(node_ids))
        pairs, among, roots = without(new_nodes.node_ids, new_nodes.neighbors), new_nodes.among, smoothing.roots
        if among is None:
            return smoothing.logits(known, node_ids, [self._hop(0, pairs, node_ids, roots)])
        return smoothing.logits(known, node_ids, self._hops_among(0, pairs, among, node_ids, roots))

    def _given(self, new_nodes: NewNodes) -> Tensor:
        """The labels that an evaluation gives as inputs to the nodes of the graph among these."""
        return known_labels(*self._labels(torch.from_numpy(new_nodes.node_ids)))

    def _labels(self, node_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Labels of rows that stand for nodes of the graph, anything for others, and which rows are training nodes."""
        of_graph, training = node_ids.clamp(min=0), node_ids >= 0
        if training.any():
            training &= self._split[of_graph] == TRAIN
        return self._store.labels(of_graph), training

    @cached_property
    def _split(self) -> Tensor:
        return split_of(self._store, self._trained.config.data, self._trained.seed)

    def _layer_neighbors(
        self, index: int, hops: Sequence[list[Hop]], totals: Sequence[Tensor], hidden: Tensor
    ) -> Neighbors:
        """The neighbors of new nodes in layer `index`, from 1; partial sums of the graph's own nodes are stored."""
        neighbors = self._neighbors(hops, totals, self._states.hidden[index - 1 : index], hidden)
        if not self._relation.num_partials:
            return neighbors

        def propagate(power: int, rows: Tensor) -> Tensor:
            return self._neighbors(hops, totals, self._states.partials[index - 1][power - 1 : power], rows).sums[0]

        return PowerNeighbors(neighbors, propagate)

    def _neighbors(
        self, hops: Sequence[list[Hop]], totals: Sequence[Tensor], seen: Sequence[Column], hidden: Tensor
    ) -> SummedNeighbors:
        """What new nodes get from the states that a layer has seen in the evaluation, and from their own."""
        sums = [stored_sums(hop, seen[0], hidden) for hop in hops]
        return SummedNeighbors(sums, torch.stack(list(totals), 1) if hops else hidden[:, :0])

    def _hops(self, new_nodes: NewNodes) -> list[list[Hop]]:
        """The edges to new nodes, a hop at a time: from the graph and, if they are joined, from each other."""
        if not self._order:
            return []
        own, among = new_nodes.node_ids, new_nodes.among
        neighbors, known = without(own, new_nodes.neighbors), torch.from_numpy(own)
        reached = [neighbors, *(self._extended(neighbors, hop) for hop in self._shorter)]
        roots, (weights, among_weights) = self._states.roots, self._weights(new_nodes)
        if among is None:
            apart = [without(own, pairs) for pairs in reached]
            return [
                [self._hop(index, pairs, known, roots, None if index else weights)] for index, pairs in enumerate(apart)
            ]
        through, rows = [among], np.arange(len(new_nodes))
        for index in range(1, len(reached)):  # whoever reaches a new node reaches those that hear it a step later
            reached[index] = followed(reached[index], among, reached[index - 1], self._store.num_nodes)
            through.append(without(rows, followed(through[-1], among, through[-1], len(rows))))
        none = None, None
        return [
            self._hops_among(*hop, known, roots, *((weights, among_weights) if hop[0] == 0 else none))
            for hop in zip(range(len(reached)), reached, through, strict=True)
        ]

    def _weights(self, new_nodes: NewNodes) -> tuple[Tensor | None, Tensor | None]:
        """What edges from the graph and among new nodes weigh, where the model heeds that."""
        if not self._relation.weights:
            return None, None
        assert new_nodes.weights is not None
        kept = new_nodes.weights[others(new_nodes.node_ids, new_nodes.neighbors)]
        among = new_nodes.among_weights
        return torch.from_numpy(kept), None if among is None else torch.from_numpy(among)

    def _extended(self, neighbors: Pairs, hop: Store) -> Pairs:
        """Who reaches a new node by way of its neighbors, these included; `hop` has the in-edges of the one before."""
        indptr, through = neighbors
        rows = rows_of_pairs(neighbors)
        all_rows, all_sources = [rows], [through]
        for number, part in enumerate(hop.parts):
            inside = (through >= part.start) & (through < part.stop)
            starts, counts, sources = hop.in_edges_of(number, through[inside] - part.start)
            all_rows.append(np.repeat(rows[inside], counts))
            all_sources.append(sources[joined(starts, counts)])
        return distinct(np.concatenate(all_rows), np.concatenate(all_sources), len(indptr) - 1, self._store.num_nodes)

    def _hop(
        self,
        index: int,
        pairs: Pairs,
        known: Tensor,
        factors: Column | None,
        weights: Tensor | None = None,
        heard: Tensor | None = None,
    ) -> Hop:
        """A new node has a loop, and other edges that run both ways, or in a directed graph only to it.

        `heard` are the degrees [n] by edges that it has besides.
        """
        indptr, sources = map(torch.from_numpy, pairs)
        segments = [EdgeSegment(0, indptr, sources, weights)]
        ones = torch.ones(len(known), dtype=self._model.input.weight.dtype)
        if factors is None:
            return Hop(segments, ones)
        degrees = Hop(segments, ones).in_degrees(torch.empty(len(known), dtype=torch.float64))
        received = degree_factors(degrees + (0 if heard is None else heard), ones.dtype)
        sent = received
        if self._store.manifest.directed:
            sent = torch.where(known >= 0, factors.at(known.clamp(min=0).numpy())[known.clamp(min=0), index], ones)
        return Hop(segments, sent, factors.at(sources.numpy())[:, index], received)

    def _hops_among(
        self,
        index: int,
        pairs: Pairs,
        through: Pairs,
        known: Tensor,
        roots: Column | None,
        weights: Tensor | None = None,
        among_weights: Tensor | None = None,
    ) -> list[Hop]:
        """The hop from the graph, and the one among new nodes, which by themselves send to no other."""
        indptr, rows = map(torch.from_numpy, through)
        among = EdgeSegment(0, indptr, rows, among_weights)
        heard, sends = torch.zeros(2, len(known), dtype=torch.float64)
        Hop([among]).in_degrees(heard)
        of_graph = self._hop(index, pairs, known, roots, weights, heard)
        assert of_graph.loops is not None
        sent = of_graph.loops
        if of_graph.target_factors is not None and self._store.manifest.directed:
            Hop([among]).add_out_degrees(sends)
            sent = degree_factors(sends + 1, sent.dtype)
            of_graph = replace(of_graph, loops=sent)
        factors = None if of_graph.target_factors is None else sent
        return [of_graph, Hop([among], None, factors, of_graph.target_factors)]


def _totals(hops: Sequence[Hop]) -> Tensor:
    """The sums [n] of the weights of the edges to new nodes, those of one hop."""
    loops = hops[0].loops
    assert loops is not None
    totals = loops
    for hop in hops:
        segment = hop.segments[0]
        weights = loops.new_ones(len(segment.sources))
        if hop.source_factors is not None:
            weights = hop.source_factors.index_select(0, segment.sources)
        if segment.weights is not None:
            weights = weights * segment.weights.to(weights.dtype)
        totals = totals.index_add(0, torch.arange(len(loops)).repeat_interleave(segment.indptr.diff()), weights)
    return totals if hops[0].target_factors is None else totals * hops[0].target_factors
