"""What an epoch of a small graph costs: Cora against the published recipe in time, Deezer in memory.

    NFDIST_DATA=FOLDER python benchmarks/paper/epoch.py [--turns 10] [--threads 2]

Both sides train the published model on the whole graph, each in a process of its own, and take turns of five steps and
five epochs, which are a step and an evaluation with its scores. nfdist's threads wait for each other as those of the
`nfdist` command do, the other side's as torch's own do. The published side reads features as a dense matrix, as the
published code does. Deezer (31,241 sparse features) is three epochs of `nfdist train`, and its memory the peak
resident set that the run reports.
"""

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from unittest.mock import patch

import published
import torch

from nfdist import settings
from nfdist.cli.main import WAITING
from nfdist.config import Config
from nfdist.evaluation.full import FullGraph
from nfdist.evaluation.scores import resolve_metric, score
from nfdist.graph.graph import Graph
from nfdist.graph.split import split_of
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.task import Task
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.rendezvous import Place
from nfdist.runs.run import Run
from nfdist.training.batches import Assembler
from nfdist.training.optimization import make_optimizer
from nfdist.training.samplers import make_sampler
from nfdist.training.sampling import Position
from nfdist.training.step import Counts, Stepper
from nfdist.world import World

ROOT = Path(__file__).parents[2]
SEED = 0
AT_A_TIME = 5
GIB = 2**30


class Trained:
    """What `nfdist train` does in an epoch, without its files."""

    def __init__(self, config: Config) -> None:
        world = World()
        graph = Graph.open(config, Place(), world)
        store, self._split = graph.store, split_of(graph.store, config.data, SEED)
        self._task, self._rate, self._number = Task(store.task, store.num_classes), config.train.learning_rate, 0
        self._metric = resolve_metric(config.evaluate.metric, self._task)
        self._model = NodeFormer(
            store.num_features, store.num_classes, config.model, config.attention, config.relation, seed=SEED
        )
        assembler = Assembler(graph.loading_store, graph.loading_hops, config.relation, self._split, world)
        self._batch = assembler.assemble(*make_sampler(config, graph, self._split, world.size, SEED).take(Position()))
        self._counts = Counts(self._task.count(self._batch.labels), self._batch.num_edges, self._batch.num_nodes)
        optimizer = make_optimizer(self._model, config.train)
        self._stepper = Stepper(self._model, self._model, optimizer, self._task, config.train, world, SEED)
        self._full = FullGraph(store, graph.hops, config.relation, world)
        self._labels = store.labels(torch.arange(store.num_nodes))

    def step(self) -> None:
        self._stepper.add(self._batch, self._number, self._counts, last=True)
        self._stepper.move(self._number, self._rate)
        self._number += 1

    def epoch(self) -> None:
        self.step()
        logits = self._full.evaluate(self._model.eval(), SEED).logits
        score(World(), self._task, self._metric, logits, self._labels, self._split)


def sides_of(name: str, config: Config) -> dict[str, Callable[[], object]]:
    """A step and an epoch of one side."""
    if name == "nfdist":
        ours = Trained(config)
        return {"step": ours.step, "epoch": ours.epoch}
    graph = published.Graph.open(config)
    plain = published.Published(config, replace(graph, features=graph.features.to_dense()), SEED)

    def epoch() -> None:
        plain.step()
        plain.evaluate()

    return {"step": plain.step, "epoch": epoch}


def serve(name: str, config: Config, threads: int, orders: Connection) -> None:
    """Do what is ordered AT_A_TIME times, and answer with the seconds of each, until there are no more orders."""
    torch.set_num_threads(threads)
    sides = sides_of(name, config)
    for what in iter(orders.recv, ""):
        times = []
        for _ in range(AT_A_TIME):
            started = time.perf_counter()
            sides[what]()
            times.append(time.perf_counter() - started)
        orders.send(times)


def start(name: str, config: Config, threads: int, environment: Mapping[str, str]) -> Connection:
    """A side in a process of its own that has these variables besides."""
    fresh = multiprocessing.get_context("spawn")
    orders, far_end = fresh.Pipe()
    with patch.dict(os.environ, environment):
        fresh.Process(target=serve, args=(name, config, threads, far_end), daemon=True).start()
    return orders


def compare_epochs(config: Config, turns: int, threads: int) -> None:
    """Steps and epochs of both sides in turns, after a turn that is not counted."""
    sides = {
        name: start(name, config, threads, environment)
        for name, environment in (("nfdist", WAITING), ("published", {}))
    }
    times: dict[tuple[str, str], list[float]] = {}
    for turn in range(turns + 1):
        for what in ("step", "epoch"):
            for name, side in sides.items():
                side.send(what)
                times.setdefault((name, what), []).extend(side.recv() if turn else side.recv()[:0])
    for side in sides.values():
        side.send("")
    print(f"{'':12}{'nfdist':>10}{'published':>12}{'ratio':>8}   wanted")
    for what, wanted in (("step", ""), ("epoch", ">= 2.5")):
        left, right = (statistics.median(times[name, what]) for name in sides)
        print(f"Cora {what + ', s':7}{left:10.3f}{right:12.3f}{right / left:8.2f}   {wanted}")


def report_memory(folder: Path, threads: int) -> None:
    """The peak resident set of a training of Deezer."""
    run = folder / "deezer-run"
    overrides = (f"data.partition={folder / 'deezer-europe'}", f"run.dir={run}", "train.epochs=3", "train.seeds=[0]")
    command = [sys.executable, "-m", "nfdist", "train", str(ROOT / "launch/paper/deezer-europe.toml"), *overrides]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
    subprocess.run([*command, "observe.port=0"], check=True, capture_output=True, env=environment)
    result = Run.open(run).result()
    assert result is not None
    used = result["peak_memory_bytes"] / GIB
    print(f"Deezer, GiB {used:10.2f}{3:12}{used / 3:8.2f}   <= 1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for graph in ("cora", "deezer-europe"):
            partition(Recipe.build(str(ROOT / "partitions" / f"{graph}.toml"), {"out": str(folder / graph)}))
        cora = settings.load(ROOT / "launch/paper/cora.toml", [f"data.partition={folder / 'cora'}"])
        compare_epochs(cora, options.turns, options.threads)
        report_memory(folder, options.threads)


if __name__ == "__main__":
    main()
