"""The only golden file that knows nfdist's modules: when these move, this file follows and the numbers stay."""

import io
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from nfdist import settings
from nfdist.config import Config
from nfdist.evaluation.evaluation_graph import open_evaluation_graph
from nfdist.evaluation.new_nodes import NewNodes
from nfdist.evaluation.predict import StatesPredictor
from nfdist.evaluation.states import States
from nfdist.graph.graph import Graph
from nfdist.model.loading import broadcast_model, load_model
from nfdist.rendezvous import Place
from nfdist.runs.run import Run
from nfdist.store.store import Store
from nfdist.training.job import train
from nfdist.world import World

Rows = list[list[float]]


def train_runs(world: World, config_texts: Sequence[str]) -> list[Rows]:
    """Train every configuration as one rank; the logits of this rank's nodes for each. Every rank must call this."""
    with redirect_stderr(io.StringIO()):  # how far each has come
        return [_train_run(world, settings.parse(text)) for text in config_texts]


def _train_run(world: World, config: Config) -> Rows:
    place = Place(world.rank, world.size, world.rank, world.size)
    train(config, place, world, torch.device("cpu"), resume=False)
    return graph_logits(world, config, place)


def graph_logits(world: World, config: Config, place: Place) -> Rows:
    """The logits of a run's chosen checkpoint for this rank's nodes; ranks have theirs in order."""
    trained = broadcast_model(world, load_model(config.run.dir) if world.rank == 0 else None)
    graph = Graph.open(config, place, world)
    whole = open_evaluation_graph(config, graph.store, graph.hops, world, dtype=trained.dtype)
    rows: Rows = whole.evaluate(trained.model, trained.evaluation_seed).logits.tolist()
    return rows


def new_node_logits(run: Path, nodes: Path) -> Rows:
    """The logits of new nodes in a Parquet file, by a run that was evaluated."""
    trained = load_model(run)
    store = Store.open(trained.config.data.partition)
    predictor = StatesPredictor(trained, States.open(run, trained), store)
    rows: Rows = predictor.logits(NewNodes.read(nodes, store)).tolist()
    return rows


@contextmanager
def stopping_after(step: int) -> Iterator[None]:
    """Send this process SIGTERM when a training has recorded that step."""
    append = Run.append

    def append_and_stop(run: Run, line: Mapping[str, Any]) -> None:
        append(run, line)
        if line["kind"] == "step" and line["step"] == step:
            os.kill(os.getpid(), signal.SIGTERM)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with patch.object(Run, "append", append_and_stop):
            yield
    finally:  # a command that was stopped leaves signals ignored, for its process should end
        for number, handler in before.items():
            signal.signal(number, handler)
