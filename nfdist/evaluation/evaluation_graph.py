"""Which evaluation of a whole graph a model gets."""

import torch

from nfdist.collectives import raised_on_all_ranks
from nfdist.config import Config
from nfdist.errors import ConfigError
from nfdist.evaluation.full import FullGraph
from nfdist.evaluation.in_memory import InMemoryGraph
from nfdist.evaluation.placement import CPU
from nfdist.model.build import model_class
from nfdist.store.hops import Hops
from nfdist.store.store import GraphStore
from nfdist.world import World

EvaluationGraph = FullGraph | InMemoryGraph  # a graph to evaluate models of one kind on


def open_evaluation_graph(
    config: Config,
    store: GraphStore,
    hops: Hops,
    world: World,
    *,
    dtype: torch.dtype,
    device: torch.device = CPU,
    memory_bytes: int | None = None,
) -> EvaluationGraph:
    """The graph as the model of a configuration is evaluated on it. Every rank must call this."""
    name = config.model.name
    if model_class(name).sweeps:
        return FullGraph(store, hops, config.relation, world, memory_bytes=memory_bytes, dtype=dtype, device=device)
    with raised_on_all_ranks():
        if memory_bytes is not None:
            raise ConfigError(f"model.name = {name} is evaluated in memory, without a limit: leave --memory away")
        if store.remote:
            raise ConfigError(
                f"model.name = {name} is evaluated on the whole graph in memory, and hosts hold only some parts of "
                f"{store.directory}: copy all parts to every host, or train with train.evaluate_every=0"
            )
        return InMemoryGraph(store.local, hops, config.relation, world, dtype, device)
