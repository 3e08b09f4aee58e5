"""The partition as the ranks of a job see it: all of it on every host, or on each only some of its parts."""

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as distributed

from nfdist.collectives import agree, gather, patiently, together
from nfdist.config import Config, RelationConfig
from nfdist.errors import ConfigError
from nfdist.rendezvous import Place
from nfdist.store.distributed import DistributedStore
from nfdist.store.hop_building import Limits
from nfdist.store.hops import Hops
from nfdist.store.store import GraphStore, Store
from nfdist.world import World


@dataclass(frozen=True)
class Graph:
    """A partition opened by every rank. `loading` is the ranks' meeting place for the threads that make batches."""

    store: GraphStore
    hops: Hops
    loading_store: GraphStore
    loading_hops: Hops
    loading: World
    holders: list[list[int]]

    @staticmethod
    def open(config: Config, place: Place, world: World, memory_bytes: int | None = None) -> "Graph":
        """Every rank must call this; what one rank cannot open fails on all.

        With `memory_bytes`, that is the most that this process may hold while it builds hops.
        """
        store = together(world, lambda: _open_here(config))
        agree(world, {"a partition with the fingerprint": store.fingerprint()})
        held = torch.zeros(len(store.parts), dtype=torch.long)
        held[list(store.held_parts)] = 1
        visible = torch.stack(gather(world, held, "compare parts"))
        holders = [rows.nonzero()[:, 0].tolist() for rows in visible.unbind(1)]
        timeout = timedelta(seconds=config.run.timeout_seconds)
        group = distributed.new_group(backend="gloo", timeout=timeout) if world.size > 1 else None
        loading = world.meeting_in(group)
        limits = Limits(memory_bytes=memory_bytes)
        if bool(visible.all()):
            hops = _open_hops(store, config.relation, place, world, limits)
            return Graph(store, hops, store, hops, loading, holders)
        main, second = DistributedStore(store, world), DistributedStore(store, loading)
        hops = _open_hops(main, config.relation, place, world, limits)
        return Graph(main, hops, second, hops.of(second), loading, holders)


def _open_here(config: Config) -> Store:
    """The parts that this host can see, or of a partition elsewhere is to hold."""
    if not config.data.partition:
        raise ConfigError("data.partition names no partition: make one with nfdist partition")
    return Store.open(config.data.partition, Store.available_parts(config.data.partition))


def _open_hops(store: GraphStore, relation: RelationConfig, place: Place, world: World, limits: Limits) -> Hops:
    """The first rank of each host builds what is not kept yet; then the others open it."""
    builds = place.local_rank == 0

    def open_() -> Hops:
        return Hops.open(store, relation.num_patterns, weighted=relation.weights, limits=limits, builds=builds)

    if store.remote:  # ranks lend each other in-edges while they build
        return open_()
    built = patiently(world, lambda: open_() if builds else None)
    return patiently(world, lambda: built or open_())
