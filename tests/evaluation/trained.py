"""Trained models and runs for the tests of what evaluation writes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from nfdist.config import Config, DataConfig, DropEdgeConfig, ModelConfig, RelationConfig, TrainConfig
from nfdist.evaluation.evaluation_graph import EvaluationGraph, open_evaluation_graph
from nfdist.evaluation.full import Evaluation
from nfdist.evaluation.states import writing_states
from nfdist.model.baselines.baseline import Baseline
from nfdist.model.build import build_model
from nfdist.model.loading import TrainedModel
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.world import World
from tests.evaluation.building import OUTPUTS, Options, split_of_all
from tests.model.building import OPTIONS, jittered
from tests.store.building import build_graph

SEED = 4
TWO_HOPS = Options(*OPTIONS["defaults"])
POWERS = Options(*OPTIONS["powers"])
# The model whose evaluation is written, by the kind of the graph.
WRITTEN = {"directed": replace(POWERS, model=replace(POWERS.model, join_heads="mean")), "undirected": TWO_HOPS}
CHOSEN = build_graph().original_ids[[3, 55, 20]]


def trained_model(options: Options, store: Store, dtype: torch.dtype = torch.float64) -> TrainedModel:
    data, train = DataConfig(str(store.directory)), TrainConfig(edge_loss=0.0, label_inputs=0.5 * options.label_inputs)
    config = Config(data, options.model, options.attention, options.relation, train)
    return TrainedModel(options.build(store.num_features, dtype), config, SEED, 2, 10, store.fingerprint(), "a print")


def trained_baseline(
    name: str, store: Store, *, weights: bool = False, dtype: torch.dtype = torch.float64, **options: Any
) -> TrainedModel:
    """A baseline in which every parameter matters."""
    own = DropEdgeConfig(edge_dropout=0.4 if name == "dropedge" else 0.0)
    model = ModelConfig(name=name, channels=8, dropedge=own, **options)
    relation = RelationConfig(order=1, weights=weights)
    config = Config(DataConfig(str(store.directory)), model, relation=relation, train=TrainConfig(edge_loss=0.0))
    net = build_model(config, store.num_features, OUTPUTS, seed=3)
    assert isinstance(net, Baseline)
    net = jittered(net).to(dtype).eval()
    return TrainedModel(net, config, SEED, 2, 10, store.fingerprint(), "a print")


def evaluate_with_states(
    run: Path, trained: TrainedModel, store: Store, world: World | None = None
) -> tuple[Evaluation, EvaluationGraph]:
    """An evaluation that leaves its states in a folder."""
    world, relation = world or World(), trained.config.relation
    hops = Hops.open(store, relation.num_patterns, weighted=relation.weights)
    graph = open_evaluation_graph(trained.config, store, hops, world, dtype=trained.dtype)
    with writing_states(run, world, graph.nodes, store.num_nodes) as states:
        given = (None, *states.listeners(graph, trained.model), split_of_all(store))
        evaluation = graph.evaluate(trained.model, trained.evaluation_seed, *given)
        states.write_summaries(evaluation.summaries, trained)
    return evaluation, graph
