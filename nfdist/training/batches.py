"""Batches: the rows, labels and edges that a step is made of, made when they are asked for."""

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
from nfdist.memory import return_freed
from nfdist.store.hops import Hops
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import GraphStore
from nfdist.training.row_cache import RowCache
from nfdist.training.sampling import Position, Sampler
from nfdist.world import World

Self = TypeVar("Self", bound="Fetched")
Preparation = Callable[["Batch"], "Batch"]  # what is worked out on the CPU before a batch goes to a device
Taken = tuple[list[Tensor], Position]  # the node ids of all ranks for a batch, and the position after it


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
    """Reads batches from a store, for any number of threads at once unless it `joins_ranks`.

    `split` [nodes] says for which nodes labels count. `world` is that of such threads alone.
    """

    store: GraphStore
    hops: Hops
    relation: RelationConfig
    split: Tensor
    world: World
    dtype: torch.dtype = torch.float32
    cache: RowCache | None = None

    @property
    def joins_ranks(self) -> bool:
        """Whether ranks talk to each other about a batch: then one thread of each assembles all, in the same order."""
        return self.store.remote or self._crosses_ranks

    @property
    def _crosses_ranks(self) -> bool:
        return self.relation.scope == "world" and self.world.size > 1 and self.relation.num_patterns > 0

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
        if not self._crosses_ranks:
            symmetric = not self.store.manifest.directed
            patterns = [replace(self.hops.induced(hop, own), symmetric=symmetric) for hop in hops]
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
        self._buffer, self._copies = Buffer(device), Copies(device)
        self.waited_seconds = 0.0

    def __iter__(self) -> Iterator[Batch]:
        while (made := self._timed(self._next)) is not None:
            yield made.here()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        pass

    def _timed(self, get: Callable[[], Sent | None]) -> Sent | None:
        started = time.perf_counter()
        batch = get()
        self.waited_seconds = time.perf_counter() - started
        return batch

    def _next(self) -> Sent | None:
        """The next batch; its features stay as they are until the one after it is made."""
        taken = self._take()
        return None if taken is None else self._make(taken, self._buffer, self._copies)

    def _take(self) -> Taken | None:
        """What the next batch is of; None after the last."""
        if self._position.epoch >= self._epochs:
            return None
        node_ids, self._position = self._sampler.take(self._position)
        return node_ids, self._position

    def _make(self, taken: Taken, buffer: Buffer, copies: Copies) -> Sent:
        sent = self._send(self._assembler.assemble(*taken, buffer), copies)
        buffer.copied = sent.arrival
        return sent

    def _send(self, batch: Batch, copies: Copies, earlier: Batch | None = None) -> Sent:
        """The batch, prepared and on its way to the device."""
        moved = self._prepared(batch).moved(copies, earlier)
        return Sent(moved, copies.arrival())


class Repeated(Fetched):
    """The same batch for every epoch, for steps that take the whole graph: made once, on first use."""

    def __iter__(self) -> Iterator[Batch]:
        whole: Batch | None = None
        batch: Batch | None = None
        while (taken := self._take()) is not None:
            if whole is None:
                whole = self._assembler.assemble(*taken, self._buffer)
                return_freed()  # edges were put together of many pieces, as large as all of them
            whole = replace(whole, after=taken[1])
            batch = self._send(whole, self._copies, batch).here()
            yield batch
