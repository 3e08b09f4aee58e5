"""The exact evaluation of a whole graph: layer by layer, chunk by chunk, in memory that does not grow with it.

A layer's keys are summarized while its rows are made; then all ranks merge their summaries and fetch the rows of
other ranks that their edges start from; then every chunk of rows goes through the layer, and is at once summarized for
the next one. Where relations are powers, sweeps for their partial sums come before it (graph/neighbors.py).

On a GPU the states of all rows stay in its memory if they fit, and else in that of the host, where the sums over edges
are made then; rows are worked on by the GPU either way (placement.py).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from nfdist import log
from nfdist.attention.all_reduce import all_reduce_summary
from nfdist.attention.kernel import Kernel
from nfdist.attention.summary import KeySummary, summarize
from nfdist.collectives import together
from nfdist.config import RelationConfig
from nfdist.devices import exact_products, is_gpu, placed, sent
from nfdist.errors import ConfigError
from nfdist.evaluation.budget import Budget
from nfdist.evaluation.placement import CPU, Placement, Room
from nfdist.evaluation.propagation import EDGES, Propagation
from nfdist.evaluation.sweep_memory import row_numbers, state_shapes
from nfdist.graph.division import divide_among
from nfdist.graph.neighbors import Neighbors, RelatedRows, partial_sum
from nfdist.graph.shard import Shard
from nfdist.graph.spill import Spill
from nfdist.graph.split import training_labels
from nfdist.log import Progress
from nfdist.memory import format_bytes, keep_freed_memory
from nfdist.model.branch import GraphBranch
from nfdist.model.gaps import fill_gaps
from nfdist.model.layer import AttentionLayer, BoundLayer
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Model
from nfdist.store.hops import Hops
from nfdist.store.store import GraphStore
from nfdist.world import World


@dataclass(frozen=True)
class Evaluation:
    """Logits [n, outputs] and last hidden states [n, c] of this rank's nodes, and every layer's summary of all keys.

    They lie where the graph's states do, and stay as they are until the next evaluation of the same graph. A baseline
    has logits alone.
    """

    nodes: range
    logits: Tensor
    hidden: Tensor | None
    summaries: tuple[KeySummary, ...]


@dataclass(frozen=True)
class LayerInput:
    """What layer `index` (from 1) is about to see: the states of this rank's rows and of their halo, and all keys.

    Where relations are powers, `partials` are y_1, ... of the same rows. It is there for as long as a listener is being
    told of it; without partials the states stay until the next layer's listeners are.
    """

    index: int
    layer: AttentionLayer
    kernel: Kernel
    summary: KeySummary
    shard: Shard
    states: Tensor
    partials: Sequence[Tensor] = ()

    def hidden(self, rows: slice | Tensor) -> Tensor:
        """Hidden states [rows, c], a copy or a view."""
        return self.shard.load(self.states, rows)


Listener = Callable[[LayerInput], None]
# Is told of the states that convolution `index` (from 1) of a graph branch, or of a baseline, is about to see, by rows.
BranchListener = Callable[[int, Callable[[slice], Tensor]], None]
Result = TypeVar("Result")


class FullGraph:
    """A partitioned graph to evaluate models on, again and again: what does not depend on weights is made once.

    Every rank must make one and evaluate together with the others; each has its own range of nodes. With
    `memory_bytes`, that is the most this process may hold of the host's memory: what does not fit is in files in
    `scratch`. Where the rows of a `device` are kept is decided by the first evaluation.
    """

    def __init__(
        self,
        store: GraphStore,
        hops: Hops,
        relation: RelationConfig,
        world: World,
        *,
        memory_bytes: int | None = None,
        scratch: Path | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device = CPU,
    ) -> None:
        assert hops.weighted == relation.weights
        self._world, self._relation, self._dtype, self.device = world, relation, dtype, device
        self._kept: list[Tensor] = []
        self._propagation: Propagation | None = None
        self._store = store.local
        divided = divide_among(world, store)
        self.nodes = divided[world.rank]
        self._budget = together(world, lambda: Budget.within(memory_bytes, len(self.nodes)))
        self._spill = Spill(self._budget.held_bytes, scratch)
        round_bytes = self._budget.work_bytes // 4
        self._shard_of = partial(
            Shard,
            self._store,
            hops,
            world=world,
            divided=divided,
            spill=self._spill,
            dtype=dtype,
            round_bytes=round_bytes,
        )
        self._shard = self._shard_of(relation)
        on_cpu = Room(self._spill, Placement.on_cpu(self._budget.work_bytes))
        self._room = None if is_gpu(device) else on_cpu

    def propagation(self) -> Propagation:
        """The sums over edges that smoothing needs, whatever the model's are. Every rank must call this."""
        if self._propagation is None:
            assert self._room is not None, "evaluate first"
            hops, shard = self._relation.num_patterns, self._shard
            # Among several ranks the halo of a second hop would be copied for nothing, and may be the whole graph.
            of_others = self._relation.weights or not self._relation.normalize or hops == 0
            if of_others or (hops > 1 and self._world.size > 1):
                shard = self._shard_of(EDGES)
            room = replace(self._room, placement=self._room.placement.beside_states)
            shard = shard.to(room.placement.states, room.placement.work)
            self._propagation = Propagation(shard, room, self._world, self.nodes, self._dtype)
        return self._propagation

    @torch.no_grad()
    @exact_products()  # also beside a training by rounded ones
    def evaluate(
        self,
        model: Model,
        seed: int,
        progress: Progress | None = None,
        listeners: Sequence[Listener] = (),
        branch_listener: BranchListener | None = None,
        split: Tensor | None = None,
    ) -> Evaluation:
        """Evaluate a model in evaluation mode with the directions of a seed. Every rank must call this.

        `progress` is told of every row of each of the model's states, and listeners of every layer, on all ranks. A
        model that takes labels is given those of all training nodes, by the `split` [nodes] of its run.
        """
        assert isinstance(model, NodeFormer)
        model = placed(model, self.device)
        given = partial(self._given, model, split)
        keep_freed_memory()
        room = self._room = self._room or self._room_beside(model)
        logits, branch_logits, states, spare, *more = together(self._world, partial(self._tensors_for, model, room))
        if model.branch is not None:
            self._convolve(model, model.branch, [states, spare], branch_logits, given, progress, branch_listener)
        make: Callable[[slice], Tensor] = partial(self._first_rows, model, given)
        summaries: list[KeySummary] = []
        for index in range(model.model.layers + 1):
            kernel = (
                model.evaluation_kernel(seed, index + 1, model.input.weight) if index < model.model.layers else None
            )
            summary = self._swept(
                _Sweep(model, index, make, kernel, self._shard, states, logits, branch_logits), progress
            )
            if kernel is None or summary is None:
                break
            summaries.append(all_reduce_summary(summary, self._world))
            self._shard.fetch(states)
            bound = model.bind(index + 1, kernel, summaries[-1])
            partials = self._partial_sums(model, bound, states, [spare, *more], progress)
            for listen in listeners:
                layer = model.layer(index + 1)
                listen(LayerInput(index + 1, layer, kernel, summaries[-1], self._shard, states, partials))
            make = partial(self._next_rows, bound, states, partials)
            if not partials:  # else a row sees no state but its own, and the next takes its place
                states, spare = spare, states
        return Evaluation(self.nodes, logits, states[: len(self.nodes)], tuple(summaries))

    def _convolve(
        self,
        model: NodeFormer,
        branch: GraphBranch,
        states: list[Tensor],
        logits: Tensor,
        given: Callable[[slice], Tensor | None],
        progress: Progress | None,
        listener: BranchListener | None,
    ) -> None:
        """The logits of a graph branch for all rows; its states take turns in two tensors."""

        def sweep(index: int, rows: slice) -> None:
            epilogue = model.branch_epilogue(branch, index)
            if index == 0:
                features = fill_gaps(self._features(rows), model.feature_means)
                hidden = branch.first_state(branch.input.prepare(features), epilogue, given(rows))
            else:
                before = states[1 - index % 2]
                neighbors = self._shard.neighbors(before, rows, 1)
                hidden = branch.next_state(index, self._shard.load(before, rows), neighbors, epilogue)
            if index == branch.num_layers:
                logits[rows] = branch.output(hidden).to(logits.device)
            else:
                self._shard.store(states[index % 2], rows, hidden)

        for index in range(branch.num_layers + 1):
            list(self._by_chunks(model, partial(sweep, index), progress))
            if index < branch.num_layers:
                self._shard.fetch(states[index % 2])
                if listener is not None:
                    listener(index + 1, partial(self._shard.load, states[index % 2]))

    def _features(self, rows: slice) -> Tensor:
        return sent(self._store.take(self._node_ids(rows)).to(self._dtype), self.device)

    def _given(self, model: NodeFormer, split: Tensor | None, rows: slice) -> Tensor | None:
        """The labels that the model is given as inputs, if it takes any."""
        if model.label_input is None:
            return None
        assert split is not None
        return sent(training_labels(self._store, split, self._node_ids(rows)), self.device)

    def _node_ids(self, rows: slice) -> Tensor:
        return torch.arange(self.nodes.start + rows.start, self.nodes.start + rows.stop)

    def _first_rows(self, model: NodeFormer, given: Callable[[slice], Tensor | None], rows: slice) -> Tensor:
        return model.first_state(self._features(rows), given(rows))

    def _partial_sums(
        self, model: NodeFormer, bound: BoundLayer, states: Tensor, room: list[Tensor], progress: Progress | None
    ) -> list[Tensor]:
        """The partial sums of the powers for all rows and their halo, y_1 first. Every rank must call this."""
        count = model.relation.num_partials

        def sweep(power: int, rows: slice) -> None:
            hidden = self._shard.load(states, rows)
            if power == count:
                sums = self._shard.neighbors(states, rows).related(hidden, bound.maps[-1:], bound.offsets[-1:])
            else:
                sums = self._shard.propagate(room[power], rows)
            made = partial_sum(power, hidden, bound.maps, bound.offsets, sums)
            self._shard.store(room[power - 1], rows, made)

        for power in range(count, 0, -1):
            list(self._by_chunks(model, partial(sweep, power), progress))
            self._shard.fetch(room[power - 1])
        return room[:count]

    def _next_rows(self, bound: BoundLayer, states: Tensor, partials: Sequence[Tensor], rows: slice) -> Tensor:
        neighbors: Neighbors  # first: its sums leave nothing in the caches
        if partials:
            neighbors = RelatedRows(self._shard.propagate(partials[0], rows))
        else:
            neighbors = self._shard.neighbors(states, rows)
        return bound(self._shard.load(states, rows), neighbors)

    def _swept(self, sweep: "_Sweep", progress: Progress | None) -> KeySummary | None:
        """Sweep over all rows, and merge the summaries of the chunks in their order."""
        summary = None if len(self.nodes) else sweep.summarized(sweep.states[:0].to(self.device))
        for part in self._by_chunks(sweep.model, sweep, progress):
            summary = part if summary is None or part is None else summary.merge(part)
        return summary

    def _by_chunks(
        self, model: NodeFormer, work: Callable[[slice], Result], progress: Progress | None
    ) -> Iterator[Result]:
        """What is made of all rows, some at a time, in their order."""
        with self._placement.workers(len(self.nodes)) as workers:
            chunks = self._chunks(model, workers.count)
            for rows, part in zip(chunks, workers.map(work, chunks), strict=True):
                yield part
                if progress is not None:
                    progress.advance(rows.stop - rows.start)

    def _chunks(self, model: NodeFormer, workers: int) -> list[slice]:
        """Rows small enough for caches and memory, and some for every worker."""
        size, placement = len(self.nodes), self._placement
        row_bytes = workers * self._dtype.itemsize * _row_numbers(model)
        count = -(-size // max(1, min(placement.rows_at_once, placement.work_bytes // row_bytes)))
        rows = -(-size // max(1, -(-count // workers) * workers))
        return [slice(start, min(start + rows, size)) for start in range(0, size, max(1, rows))]

    @property
    def _placement(self) -> Placement:
        assert self._room is not None
        return self._room.placement

    def _room_beside(self, model: NodeFormer) -> Room:
        """Decide where states lie, and bring there what is needed beside them. Every rank must call this."""
        outputs = model.output.out_features
        smoothed = 2 * (self._shard.num_sources + len(self.nodes)) * 2 * outputs  # more than smoothing takes
        needed = (smoothed + sum(map(math.prod, self._shapes(model)))) * self._dtype.itemsize
        placement = Placement.decided(self._world, self.device, needed, self._shard.edge_bytes, self._budget.work_bytes)
        if placement.states != self.device and self._world.rank == 0:
            log.notice(
                f"{self.device} has no room for {format_bytes(needed)} of states: they are kept in the memory of the "
                "host, which takes longer; more ranks would have less each"
            )
        self._shard = self._shard.to(placement.states, placement.work, edges=placement.edges)
        return Room(self._spill, placement)

    def _shapes(self, model: NodeFormer) -> list[tuple[int, int]]:
        """Of the tensors that an evaluation works with."""
        sources, outputs = self._shard.num_sources, model.output.out_features
        return state_shapes(model.model, model.relation, outputs, len(self.nodes), sources)

    def _tensors_for(self, model: NodeFormer, room: Room) -> list[Tensor]:
        """Tensors of these shapes. Those of the host are kept for later evaluations; a GPU has other work between."""
        if model.input.in_features != self._store.num_features:
            raise ConfigError(
                f"the model takes {model.input.in_features} features, the nodes of {self._store.directory} have "
                f"{self._store.num_features}: evaluate it on the graph it was trained on"
            )
        assert not model.training
        assert model.input.weight.dtype == self._dtype
        assert replace(model.relation, gate="none", scope="rank") == replace(self._relation, gate="none", scope="rank")
        shapes = self._shapes(model)
        if is_gpu(room.placement.states):
            return [room.tensor(shape, self._dtype) for shape in shapes]
        if [tuple(tensor.shape) for tensor in self._kept] != shapes:
            self._kept.clear()  # first, so that its place can be taken
            self._kept = [room.tensor(shape, self._dtype) for shape in shapes]
        return self._kept


@dataclass(frozen=True)
class _Sweep:
    """Makes rows of state `index`, adds their logits and keeps them; `kernel` is that of the layer that follows."""

    model: NodeFormer
    index: int
    make: Callable[[slice], Tensor]
    kernel: Kernel | None
    shard: Shard
    states: Tensor
    logits: Tensor
    branch_logits: Tensor

    def __call__(self, rows: slice) -> KeySummary | None:
        hidden, kept = self.make(rows), self.logits[rows]
        so_far = kept.to(hidden.device)
        logits = self.model.logits(hidden, self.index, so_far if self.index else None)
        if logits is not None:
            so_far = logits
        if self.kernel is None and self.model.branch is not None:
            so_far = self.model.branch.mix(so_far, self.branch_logits[rows].to(hidden.device))
        if so_far is not kept:
            kept.copy_(so_far)
        if self.kernel is None:
            self.states[rows] = hidden
        else:
            self.shard.store(self.states, rows, hidden)
        return self.summarized(hidden)

    def summarized(self, hidden: Tensor) -> KeySummary | None:
        """What the queries of the next layer need to know of these rows, if there is one."""
        if self.kernel is None:
            return None
        return summarize(self.model.layer(self.index + 1).keys(hidden, self.kernel), hidden, self.kernel)


def _row_numbers(model: NodeFormer) -> int:
    gaps, labels = model.feature_means is not None, model.label_input is not None
    return row_numbers(model.model, model.input.in_features, model.output.out_features, gaps=gaps, labels=labels)
