"""Batches: the rows, labels and edges that a step is made of, made ahead of time by a thread of their own."""

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

import torch
from torch import Tensor

from nfdist.config import RelationConfig
from nfdist.devices import Arrival, Copies, is_gpu, readable_by
from nfdist.graph.halo import Halo
from nfdist.graph.relation import Relation, build_world_relations
from nfdist.graph.split import has_label
from nfdist.store.hops import Hops
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import GraphStore
from nfdist.training.row_cache import RowCache
from nfdist.training.sampling import Position, Sampler
from nfdist.world import World

Self = TypeVar("Self", bound="Fetched")
Preparation = Callable[["Batch"], "Batch"]  # what is worked out on the CPU before a batch goes to a device


@dataclass(frozen=True)
class Batch:
    """What a rank trains on at once: its nodes, of which `labeled` rows have a label that counts, and their edges.

    `after` is the position once it is used. Where labels are inputs, `given` has those of this batch, for all nodes
    with -1 for none, and these are not among `labels` (label_inputs.py).

    For a device other than the CPU it has what would make the host wait there (preparation.py): which of the flattened
    `labels` are `known`, unless all are, and the `directions` of its attention; and `host`, the batch as it was before.
    With a `cache` on the device features are of the other rows alone, until they are joined there.
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
    known: Tensor | None = None
    directions: Tensor | None = None
    cache: RowCache | None = None
    host: "Batch | None" = None

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
        return blake2b(self.on_host.node_ids.numpy().tobytes(), digest_size=8).hexdigest()

    @property
    def on_host(self) -> "Batch":
        """The same on the CPU, where its numbers can be looked at without waiting for a device."""
        return self.host or self

    def moved(self, copies: Copies, earlier: "Batch | None" = None) -> "Batch":
        """The batch on the device of `copies`, with what an earlier one has there already and shares with this."""
        if not is_gpu(copies.device):
            return self
        made: dict[str, Any] = {}
        for name in ("node_ids", "features", "labeled", "labels", "given", "known", "directions", "relations", "halo"):
            value = getattr(self, name)
            if earlier is not None and value is getattr(earlier.on_host, name):
                made[name] = getattr(earlier, name)
            elif name == "relations":
                made[name] = [relation.each(copies.move) for relation in value]
            elif value is not None:
                made[name] = value.each(copies.move) if isinstance(value, Halo) else copies.move(value)
        if self.cache is not None:
            made["features"] = copies.make(partial(self.cache.joined, made["node_ids"], made["features"]))
        return replace(self, **made, host=self)


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
    cache: RowCache | None = None

    def assemble(self, node_ids: list[Tensor], after: Position, buffer: "Buffer | None" = None) -> Batch:
        """The batch of this rank, given the node ids of all ranks. Every rank must call this.

        With a buffer, its features stay as they are until the buffer is used again.
        """
        sent_before = self.world.watch.sent_bytes
        own = node_ids[self.world.rank]
        features = self._features(own if self.cache is None else own[self.cache.count(own) :], buffer)
        labels = self.store.labels(own)
        labeled = ((self.split[own] == TRAIN) & has_label(labels)).nonzero()[:, 0]
        relations, halo = self._relations(node_ids)
        sent = self.world.watch.sent_bytes - sent_before
        return Batch(own, features, labeled, labels[labeled], relations, halo, after, sent, cache=self.cache)

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
    """Memory that one batch after another is read into: fresh pages would cost more than the reading.

    It is read again only when `copied`, the last copy of it to a device, is complete.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self._memory, self._device = torch.empty(0, 0), device or torch.device("cpu")
        self.copied = Arrival()

    def rows(self, count: int, store: GraphStore) -> Tensor:
        self.copied.complete()
        if len(self._memory) < count or self._memory.shape[1] != store.num_features:
            dtype = getattr(torch, store.manifest.feature_dtype)
            self._memory = readable_by(self._device, (count, store.num_features), dtype)
        return self._memory[:count]


@dataclass(frozen=True)
class Sent:
    """A batch whose copies to a device may still be under way."""

    batch: Batch
    arrival: Arrival

    def here(self) -> Batch:
        """The batch, for work that the device does after its copies."""
        self.arrival.precede()
        return self.batch


class Fetched:
    """The batches from a position to the end of an epoch, made when they are asked for.

    Each is `prepared` on the CPU. `waited_seconds` is how long the last one was waited for.
    """

    def __init__(
        self,
        assembler: Assembler,
        sampler: Sampler,
        position: Position,
        epochs: int,
        device: torch.device,
        prepared: Preparation = lambda batch: batch,
    ) -> None:
        self._assembler, self._sampler, self._position = assembler, sampler, position
        self._epochs, self._prepared = epochs, prepared
        self._copies = Copies(device)
        self._buffers, self._made = [Buffer(device)], 0
        self.waited_seconds = 0.0

    def __iter__(self) -> Iterator[Batch]:
        while (made := self._timed(self._make)) is not None:
            yield made.here()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        pass

    def _timed(self, get: Callable[[], "Sent | None"]) -> "Sent | None":
        started = time.perf_counter()
        batch = get()
        self.waited_seconds = time.perf_counter() - started
        return batch

    def _make(self) -> "Sent | None":
        """The next batch; its features stay as they are until all buffers were used again."""
        if self._position.epoch >= self._epochs:
            return None
        node_ids, self._position = self._sampler.take(self._position)
        self._made += 1
        buffer = self._buffers[self._made % len(self._buffers)]
        sent = self._send(self._assembler.assemble(node_ids, self._position, buffer))
        buffer.copied = sent.arrival
        return sent

    def _send(self, batch: Batch, earlier: Batch | None = None) -> "Sent":
        """The batch, prepared and on its way to the device."""
        moved = self._prepared(batch).moved(self._copies, earlier)
        return Sent(moved, self._copies.arrival())


class Repeated(Fetched):
    """The same batch for every epoch, for steps that take the whole graph: made once, on first use."""

    def __iter__(self) -> Iterator[Batch]:
        if self._position.epoch >= self._epochs:
            return
        node_ids, self._position = self._sampler.take(self._position)
        whole = self._assembler.assemble(node_ids, self._position, self._buffers[0])
        batch = self._send(whole).here()
        yield batch
        while self._position.epoch < self._epochs:
            self._position = self._sampler.take(self._position)[1]
            batch = self._send(replace(whole, after=self._position), batch).here()
            yield batch


class Prefetched(Fetched):
    """Batches that are each made while the one before is in use.

    When it is closed early, every rank has made the same number of batches: as many as were used, and one more.
    """

    def __init__(
        self,
        assembler: Assembler,
        sampler: Sampler,
        position: Position,
        epochs: int,
        device: torch.device,
        prepared: Preparation = lambda batch: batch,
    ) -> None:
        super().__init__(assembler, sampler, position, epochs, device, prepared)
        self._ready: queue.Queue[Sent | BaseException | None] = queue.Queue()
        self._changed = threading.Condition()
        self._buffers.append(Buffer(device))  # for the batch that is made beside one in use
        self._used, self._closed = 0, False
        self._thread = threading.Thread(target=self._run, name="nfdist batches", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Batch]:
        while (made := self._timed(self._next)) is not None:
            yield made.here()
            with self._changed:
                self._used += 1
                self._changed.notify()

    def _next(self) -> "Sent | None":
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
        self._copies.enter_thread()
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


def fetch(
    assembler: Assembler,
    sampler: Sampler,
    position: Position,
    epochs: int,
    device: torch.device,
    prepared: Preparation = lambda batch: batch,
) -> Fetched:
    """The batches from a position to the end of an epoch, in the background where that keeps something busy.

    That is a GPU, or a network that brings rows. A step on the processor leaves no core idle, and all of them making a
    batch together are sooner done than one of them beside a step, whose threads and ranks would wait for it.
    """
    background = is_gpu(device) or assembler.store.remote
    return (Prefetched if background else Fetched)(assembler, sampler, position, epochs, device, prepared)
