"""Batches: the rows, labels and edges that a step is made of, made ahead of time by a thread of their own."""

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TypeVar

import torch
from torch import Tensor

from nfdist.config import RelationConfig
from nfdist.devices import is_gpu
from nfdist.graph.halo import Halo
from nfdist.graph.relation import Relation, build_world_relations
from nfdist.graph.split import has_label
from nfdist.store.hops import Hops
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import GraphStore
from nfdist.training.sampling import Position, Sampler
from nfdist.world import World

Self = TypeVar("Self", bound="Fetched")


@dataclass(frozen=True)
class Batch:
    """What a rank trains on at once: its nodes, of which `labeled` rows have a label that counts, and their edges.

    `after` is the position once it is used. Where labels are inputs, `given` has those of this batch, for all nodes
    with -1 for none, and these are not among `labels` (label_inputs.py).
    """

    node_ids: Tensor
    features: Tensor
    labeled: Tensor
    labels: Tensor
    relations: list[Relation]
    halo: Halo | None
    after: Position
    sent_bytes: int = 0
    given: Tensor | None = None

    @property
    def number(self) -> int:
        """How many batches came before it: what its noise and dropout are drawn from."""
        return self.after.batch - 1

    @property
    def num_nodes(self) -> int:
        return len(self.node_ids)

    @property
    def num_edges(self) -> int:
        return self.relations[0].adjacency.num_edges if self.relations else 0

    def checksum(self) -> str:
        """A name for the rows of this batch, to tell whether two ranks or runs met the same ones."""
        return blake2b(self.node_ids.numpy().tobytes(), digest_size=8).hexdigest()

    def to(self, device: torch.device) -> "Batch":
        if not is_gpu(device):
            return self
        moved = {name: getattr(self, name).to(device, non_blocking=True) for name in ("features", "labeled", "labels")}
        relations = [relation.to(device) for relation in self.relations]
        return replace(self, **moved, relations=relations, halo=self.halo.to(device) if self.halo else None)


@dataclass(frozen=True)
class Assembler:
    """Reads batches from a store. In a world of several ranks it may talk to the others, so all must assemble alike.

    `split` [nodes] says for which nodes labels count. `world` is used by one thread alone.
    """

    store: GraphStore
    hops: Hops
    relation: RelationConfig
    split: Tensor
    world: World
    dtype: torch.dtype = torch.float32

    def assemble(self, node_ids: list[Tensor], after: Position, buffer: "Buffer | None" = None) -> Batch:
        """The batch of this rank, given the node ids of all ranks. Every rank must call this.

        With a buffer, its features stay as they are until the buffer is used again.
        """
        sent_before = self.world.watch.sent_bytes
        own = node_ids[self.world.rank]
        features = self._features(own, buffer)
        labels = self.store.labels(own)
        labeled = ((self.split[own] == TRAIN) & has_label(labels)).nonzero()[:, 0]
        relations, halo = self._relations(node_ids)
        sent = self.world.watch.sent_bytes - sent_before
        return Batch(own, features, labeled, labels[labeled], relations, halo, after, sent)

    def _features(self, own: Tensor, buffer: "Buffer | None") -> Tensor:
        if buffer is None or self.store.manifest.feature_kind == "sparse":
            return self.store.take(own).to(self.dtype)
        return self.store.take(own, buffer.rows(len(own), self.store)).to(self.dtype)

    def _relations(self, node_ids: list[Tensor]) -> tuple[list[Relation], Halo | None]:
        assert self.hops.weighted == self.relation.weights
        own, hops = node_ids[self.world.rank], range(1, self.relation.num_patterns + 1)
        if self.relation.scope == "rank" or self.world.size == 1 or not hops:
            patterns = [self.hops.induced(hop, own) for hop in hops]
            return [Relation.build(pattern, self.relation.normalize, self.dtype) for pattern in patterns], None
        everyone = torch.cat(node_ids)
        patterns = [self.hops.induced(hop, own, everyone) for hop in hops]
        sizes = [len(ids) for ids in node_ids]
        return build_world_relations(self.world, sizes, patterns, self.relation.normalize, self.dtype)


class Buffer:
    """Memory that one batch after another is read into: fresh pages would cost more than the reading."""

    def __init__(self) -> None:
        self._memory = torch.empty(0, 0)

    def rows(self, count: int, store: GraphStore) -> Tensor:
        if len(self._memory) < count or self._memory.shape[1] != store.num_features:
            dtype = getattr(torch, store.manifest.feature_dtype)
            self._memory = torch.empty(count, store.num_features, dtype=dtype)
        return self._memory[:count]


class Fetched:
    """The batches from a position to the end of an epoch, made when they are asked for.

    `waited_seconds` is how long the last one was waited for.
    """

    def __init__(
        self, assembler: Assembler, sampler: Sampler, position: Position, epochs: int, device: torch.device
    ) -> None:
        self._assembler, self._sampler, self._position = assembler, sampler, position
        self._epochs, self._device = epochs, device
        self._buffers, self._made = [Buffer()], 0
        self.waited_seconds = 0.0

    def __iter__(self) -> Iterator[Batch]:
        while (made := self._timed(self._make)) is not None:
            yield made

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        pass

    def _timed(self, get: Callable[[], Batch | None]) -> Batch | None:
        started = time.perf_counter()
        batch = get()
        self.waited_seconds = time.perf_counter() - started
        return batch

    def _make(self) -> Batch | None:
        """The next batch; its features stay as they are until all buffers were used again."""
        if self._position.epoch >= self._epochs:
            return None
        node_ids, self._position = self._sampler.take(self._position)
        self._made += 1
        return self._assembler.assemble(node_ids, self._position, self._buffers[self._made % len(self._buffers)]).to(
            self._device
        )


class Repeated(Fetched):
    """The same batch for every epoch, for steps that take the whole graph: made once, on first use."""

    def __iter__(self) -> Iterator[Batch]:
        batch = self._make()
        while batch is not None:
            yield batch
            if self._position.epoch >= self._epochs:
                break
            self._position = self._sampler.take(self._position)[1]
            batch = replace(batch, after=self._position)


class Prefetched(Fetched):
    """Batches that are each made while the one before is in use.

    When it is closed early, every rank has made the same number of batches: as many as were used, and one more.
    """

    def __init__(
        self, assembler: Assembler, sampler: Sampler, position: Position, epochs: int, device: torch.device
    ) -> None:
        super().__init__(assembler, sampler, position, epochs, device)
        self._ready: queue.Queue[Batch | BaseException | None] = queue.Queue()
        self._changed = threading.Condition()
        self._buffers.append(Buffer())  # for the batch that is made beside one in use
        self._used, self._closed = 0, False
        self._thread = threading.Thread(target=self._run, name="nfdist batches", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Batch]:
        while (made := self._timed(self._next)) is not None:
            yield made
            with self._changed:
                self._used += 1
                self._changed.notify()

    def _next(self) -> Batch | None:
        made = self._ready.get()
        if isinstance(made, BaseException):
            raise made
        return made

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if kind is None:  # after a failure the thread may be waiting for a rank that is lost
            self._thread.join()

    def _run(self) -> None:
        # One quiet thread beside a step that wants all cores: it takes the moments in which they wait for each other.
        torch.set_num_threads(1)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        try:
            while self._wanted() and (batch := self._make()) is not None:
                self._ready.put(batch)
            self._ready.put(None)
        except BaseException as error:
            self._ready.put(error)

    def _wanted(self) -> bool:
        """Wait until one batch is in use and none is ahead, or until nobody wants another."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._made < self._used + 2)
            return self._made < self._used + 2


def fetch(assembler: Assembler, sampler: Sampler, position: Position, epochs: int, device: torch.device) -> Fetched:
    """The batches from a position to the end of an epoch, in the background where that keeps something busy.

    That is a GPU, or a network that brings rows. A step on the processor leaves no core idle, and all of them making a
    batch together are sooner done than one of them beside a step, whose threads and ranks would wait for it.
    """
    background = is_gpu(device) or assembler.store.remote
    return (Prefetched if background else Fetched)(assembler, sampler, position, epochs, device)
