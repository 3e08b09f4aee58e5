"""Which evaluation of a whole graph a model gets."""

import torch

from nfdist.collectives import raised_on_all_ranks
from nfdist.config import Config
from nfdist.errors import ConfigError
from nfdist.evaluation.full import FullGraph
from nfdist.evaluation.in_memory import InMemoryGraph
from nfdist.evaluation.placement import CPU
from nfdist.evaluation.propagated import PropagatedGraph
from nfdist.model.build import model_class
from nfdist.store.hops import Hops
from nfdist.store.store import GraphStore
from nfdist.world import World

EvaluationGraph = FullGraph | InMemoryGraph | PropagatedGraph  # a graph to evaluate models of one kind on


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
    graph = PropagatedGraph if model_class(name).divides and world.size > 1 else InMemoryGraph
    return graph(store, hops, config.relation, world, dtype, device)
