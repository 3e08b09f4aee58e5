"""The partition as the ranks of a job see it: all of it on every host, or on each only some of its parts."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as distributed
from torch import Tensor

from nfdist.collectives import agree, gather, together
from nfdist.config import Config
from nfdist.errors import ConfigError
from nfdist.rendezvous import Place
from nfdist.store.division import divide
from nfdist.store.graph import TRAIN
from nfdist.store.hops import Hops
from nfdist.store.shared import SharedStore
from nfdist.store.store import Store
from nfdist.training.sampling import Pools, Sampler, WholeGraph, part_owners
from nfdist.training.walks import Walks
from nfdist.world import World


@dataclass(frozen=True)
class Graph:
    """A partition opened by every rank. `loading` is the ranks' meeting place for the threads that make batches."""

    store: Store | SharedStore
    hops: Hops
    loading_store: Store | SharedStore
    loading_hops: Hops
    loading: World
    holders: list[list[int]]

    @staticmethod
    def open(config: Config, place: Place, world: World) -> "Graph":
        """Every rank must call this; what one rank cannot open fails on all."""
        store = together(world, lambda: _open_here(config))
        agree(world, {"a partition with the fingerprint": store.fingerprint()})
        held = torch.zeros(len(store.parts), dtype=torch.long)
        held[list(store.held_parts)] = 1
        visible = torch.stack(gather(world, held, "compare parts"))
        holders = [rows.nonzero()[:, 0].tolist() for rows in visible.unbind(1)]
        timeout = timedelta(seconds=config.run.timeout_seconds)
        group = distributed.new_group(backend="gloo", timeout=timeout) if world.size > 1 else None
        loading = world.meeting_in(group)
        if bool(visible.all()):
            hops = _open_hops(store, config.relation.order, place, world)
            return Graph(store, hops, store, hops, loading, holders)
        main, second = SharedStore(store, world), SharedStore(store, loading)
        hops = _open_hops(main, config.relation.order, place, world)
        return Graph(main, hops, second, Hops.open(second, config.relation.order), loading, holders)

    def sampler(self, config: Config, split: Tensor, world: World, seed: int) -> Sampler:
        """Who takes which nodes in which step; the same on every rank."""
        train, trained = config.train, split == TRAIN
        if not bool(trained.any()):
            raise ConfigError(f"{self.store.directory} has no node to train on: check its split, or set data.split")
        if world.size > 1:
            _check_graph_stays_on_rank(config, world)
        if train.batch_nodes == 0:
            if world.size > 1 and (config.attention.scope, config.relation.scope) != ("world", "world"):
                raise ConfigError(
                    f"train.batch_nodes = 0 divides the whole graph among {world.size} ranks, which needs "
                    "attention.scope=world and relation.scope=world"
                )
            return WholeGraph(divide(self.store.parts, world.size))
        if train.sampling == "walks":
            if isinstance(self.store, SharedStore):
                raise ConfigError(
                    f'train.sampling = "walks" needs all parts of {self.store.directory} on every host: copy them or '
                    "use uniform"
                )
            return Walks(self.store, world.size, train.batch_nodes, train.walk_length, seed)
        wanted = trained if train.batch_from == "train" else torch.ones_like(trained)
        if train.sampling == "uniform":
            return Pools([wanted.nonzero()[:, 0]], None, world.size, train.batch_nodes, seed)
        pools = [wanted[part.start : part.stop].nonzero()[:, 0] + part.start for part in self.store.parts]
        return Pools(pools, part_owners(self.holders, world.size), world.size, train.batch_nodes, seed)


def _check_graph_stays_on_rank(config: Config, world: World) -> None:
    """Refuse a baseline whose messages would have to cross ranks."""
    name, train = config.model.name, config.train
    if name in ("nodeformer", "mlp") or (train.batch_nodes and config.relation.scope == "rank"):
        return
    raise ConfigError(
        f"model.name = {name} hears only nodes of its own rank, so {world.size} ranks need train.batch_nodes of at "
        f'least 1 and relation.scope=rank, got {train.batch_nodes} and "{config.relation.scope}": set these, or use '
        "one rank"
    )


def _open_here(config: Config) -> Store:
    """The parts that this host can see."""
    if not config.data.partition:
        raise ConfigError("data.partition names no partition: make one with nfdist partition")
    directory = Path(config.data.partition)
    return Store.open(directory, Store.available_parts(directory))


def _open_hops(store: Store | SharedStore, order: int, place: Place, world: World) -> Hops:
    """The first rank of each host builds what is not kept yet; then the others open it."""
    builds = place.local_rank == 0
    built = together(world, lambda: Hops.open(store, order) if builds else None)
    return together(world, lambda: built or Hops.open(store, order))
