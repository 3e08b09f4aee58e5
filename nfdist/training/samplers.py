"""The sampler that a configuration names, after what no batch could be made of is refused."""

import torch
from torch import Tensor

from nfdist.collectives import together
from nfdist.config import Config
from nfdist.errors import ConfigError
from nfdist.graph.division import divide
from nfdist.graph.graph import Graph
from nfdist.memory import host_bytes
from nfdist.model.build import model_class
from nfdist.store.source_graph import TRAIN
from nfdist.training.sampling import Pools, Sampler, WholeGraph, part_owners
from nfdist.training.step_memory import INDUCED_BYTES
from nfdist.training.walks import Walks


def make_sampler(config: Config, graph: Graph, split: Tensor, ranks: int, seed: int) -> Sampler:
    """Who takes which nodes in which batch; the same on every rank."""
    train, trained, store = config.train, split == TRAIN, graph.store
    _check(config, graph, trained, ranks)
    if train.batch_nodes == 0:
        return WholeGraph(divide(store.parts, ranks))
    if train.sampling == "walks":
        roots = trained.nonzero()[:, 0] if train.batch_from == "train" else None
        return Walks(graph.loading_store, ranks, train.batch_nodes, train.walk_length, seed, roots)
    wanted = trained if train.batch_from == "train" else torch.ones_like(trained)
    if train.sampling == "uniform":
        return Pools([wanted.nonzero()[:, 0]], None, ranks, train.batch_nodes, seed)
    pools = [wanted[part.start : part.stop].nonzero()[:, 0] + part.start for part in store.parts]
    return Pools(pools, part_owners(graph.holders, ranks), ranks, train.batch_nodes, seed)


def _check(config: Config, graph: Graph, trained: Tensor, ranks: int) -> None:
    name, batch_nodes = config.model.name, config.train.batch_nodes
    if not bool(trained.any()):
        raise ConfigError(f"{graph.store.directory} has no node to train on: check its split, or set data.split")
    if ranks > 1 and not model_class(name).crosses_ranks and not (batch_nodes and config.relation.scope == "rank"):
        raise ConfigError(
            f"model.name = {name} sees only nodes of its own rank, so {ranks} ranks need train.batch_nodes of at "
            f'least 1 and relation.scope=rank, got {batch_nodes} and "{config.relation.scope}": set these, or use '
            "one rank"
        )
    if batch_nodes == 0:
        together(graph.loading, lambda: _refuse_beyond_memory(config, graph, ranks), ConfigError)
    if ranks > 1 and batch_nodes == 0 and (config.attention.scope, config.relation.scope) != ("world", "world"):
        raise ConfigError(
            f"train.batch_nodes = 0 divides the whole graph among {ranks} ranks, which needs "
            "attention.scope=world and relation.scope=world"
        )


def _refuse_beyond_memory(config: Config, graph: Graph, ranks: int) -> None:
    """Refuse to hold paths that are kept on disk since no memory has room for them."""
    paths = graph.hops.num_paths // (1 if graph.store.remote else ranks)
    if INDUCED_BYTES * paths > host_bytes():
        raise ConfigError(
            f"train.batch_nodes = 0 with relation.order = {config.relation.order} takes {paths:,} paths at once, some "
            f"{INDUCED_BYTES * paths / 2**30:,.0f} GiB, more than this host has: set train.batch_nodes or a lower order"
        )
