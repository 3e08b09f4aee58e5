"""Trained models and runs for the tests of what evaluation writes."""

from pathlib import Path

import torch

from nfdist.config import Config, DataConfig, TrainConfig
from nfdist.evaluation.full import Evaluation, FullGraph
from nfdist.evaluation.states import writing_states
from nfdist.model.loading import TrainedModel
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.world import World
from tests.evaluation.building import Options
from tests.model.building import OPTIONS
from tests.store.building import build_graph

SEED = 4
TWO_HOPS = Options(*OPTIONS["defaults"])
# The model whose evaluation is written, by the kind of the graph.
WRITTEN = {"directed": Options(*OPTIONS["powers"]), "undirected": TWO_HOPS}
CHOSEN = build_graph().original_ids[[3, 55, 20]]


def trained_model(options: Options, store: Store, dtype: torch.dtype = torch.float64) -> TrainedModel:
    data, train = DataConfig(str(store.directory)), TrainConfig(edge_loss=0.0)
    config = Config(data, options.model, options.attention, options.relation, train)
    return TrainedModel(options.build(store.num_features, dtype), config, SEED, 2, 10, store.fingerprint(), "a print")


def evaluate_with_states(
    run: Path, trained: TrainedModel, store: Store, world: World | None = None
) -> tuple[Evaluation, FullGraph]:
    """An evaluation that leaves its states in a folder."""
    world = world or World()
    model = trained.nodeformer("this test")
    hops = Hops.open(store, model.relation.num_patterns, weighted=model.relation.weights)
    full = FullGraph(store, hops, model.relation, world, dtype=model.input.weight.dtype)
    with writing_states(run, world, full.nodes, store.num_nodes) as states:
        evaluation = full.evaluate(
            model, trained.evaluation_seed, listeners=[states], branch_listener=states.write_branch
        )
        states.write_summaries(evaluation.summaries, trained)
    return evaluation, full
