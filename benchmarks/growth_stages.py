"""The stages that growth.py measures, each on a graph that is made for it, and what `nfdist plan` says of each.

A stage is prepared first, then worked on in a process of its own, forked when all libraries are loaded, so that seconds
and memory are the stage's alone.
"""

import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from evaluate import build_graph
from train import Launch, Trained

from nfdist import settings
from nfdist.api import Predictor
from nfdist.config import Config
from nfdist.evaluation.evaluator import Wanted, evaluate_run
from nfdist.graph.counts import GraphCounts
from nfdist.layout import HOPS_SUFFIX
from nfdist.memory import MemoryWatch
from nfdist.model.nodeformer import NodeFormer
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.planning import plan as plan_partition
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.sources import SourceCounts
from nfdist.plan.evaluation_work import sweep_work
from nfdist.plan.planned_job import EVALUATION_BYTES, PlannedJob
from nfdist.plan.rates import HostRates, KnownRates
from nfdist.plan.stages import plan_hops, plan_prediction, plan_training
from nfdist.rendezvous import Place
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.training.job import train
from nfdist.training.sampling import Position
from nfdist.world import World

FEATURES, CLASSES, PARTS, NEW_NODES = 64, 16, 4, 1024
SETTINGS: dict[str, dict[str, Any]] = {
    "model": {"layers": 2, "channels": 64, "heads": 1, "random_features": 32, "activation": "elu"},
    "attention": {"noise_draws": 4},
    "relation": {"order": 1, "gate": "identity"},
    "train": {"batch_nodes": 0, "evaluate_every": 0, "checkpoint_every": 0, "epochs": 1, "edge_loss": 0.01},
    "evaluate": {"smoothing": "none"},
    "observe": {"port": 0},
    "run": {"device": "cpu"},
}


@dataclass(frozen=True)
class Problem:
    """A random graph of so many nodes and edges (each once), and a model on it."""

    nodes: int
    edges: int
    overrides: tuple[str, ...] = ()

    def folder(self, work: Path) -> Path:
        return work / f"graph-{self.nodes}-{self.edges}"

    def source(self, work: Path) -> Path:
        return work / f"graph-{self.nodes}-{self.edges}.npz"

    def config(self, work: Path, *more: str) -> Config:
        where = [f'data.partition="{self.folder(work)}"', f'run.dir="{self.folder(work)}-run"']
        return settings.parse(SETTINGS, [*where, *self.overrides, *more])

    def recipe(self, work: Path, method: str, out: Path) -> Recipe:
        given = {"parts": PARTS, "out": str(out), "split": "random:0.5/0.25/0.25", "method": method}
        return Recipe.build(str(self.source(work)), given)


def make_source(problem: Problem, work: Path) -> None:
    """Edges within groups of a few hundred nodes, and some between any."""
    path = problem.source(work)
    if path.exists():
        return
    stream, nodes = np.random.default_rng(0), problem.nodes
    ends = stream.integers(nodes, size=(2, problem.edges))
    near = stream.random(problem.edges) < 0.8
    ends[1, near] = (ends[0, near] + stream.integers(1, 300, int(near.sum()))) % nodes
    labels = (np.arange(nodes) * CLASSES // nodes).astype(np.int64)
    features = stream.standard_normal((nodes, FEATURES), np.float32)
    np.savez(path, edge_index=ends.astype(np.int32), feat=features, label=labels)


def make_graph(problem: Problem, work: Path) -> None:
    make_source(problem, work)
    if not problem.folder(work).exists():
        partition(problem.recipe(work, "random", problem.folder(work)))


def make_run(problem: Problem, work: Path) -> None:
    """A run whose evaluation has left what predictions need."""
    make_graph(problem, work)
    config = problem.config(work, "train.batch_nodes=2000", "train.batch_from=train")
    train(config, Place(), World(), torch.device("cpu"), resume=False)
    evaluate_run(Path(config.run.dir), Wanted(outputs=False, states=True), Place(), World())


def work_partition(method: str) -> Callable[[Problem, Path], Callable[[], object]]:
    def work_of(problem: Problem, work: Path) -> Callable[[], object]:
        out = work / "made"
        shutil.rmtree(out, ignore_errors=True)
        return lambda: partition(problem.recipe(work, method, out))

    return work_of


def work_step(problem: Problem, work: Path) -> Callable[[], object]:
    """A step of the whole graph, the second one, its batch made before."""
    trained, position = Trained(problem.config(work)), Position()
    batch = trained.assembler.assemble(*trained.sampler.take(position))
    trained.step(batch)
    return lambda: trained.step(batch)


def work_epoch(problem: Problem, work: Path) -> Callable[[], object]:
    """All batches of an epoch, made and trained on; one step before for warmth."""
    trained = Trained(problem.config(work, "train.batch_nodes=5000"))
    positions = [Position()]
    while positions[-1].epoch == 0:
        positions.append(trained.sampler.take(positions[-1])[1])
    trained.preloaded(positions[:1])
    return lambda: trained.fetched(positions[:-1])


def work_evaluation(problem: Problem, work: Path) -> Callable[[], object]:
    store, config = Store.open(problem.folder(work)), problem.config(work)
    model = NodeFormer.build(config, store.num_features, store.num_classes, 0).eval()
    graph = build_graph(store, World())
    graph.evaluate(model, 0)
    return lambda: graph.evaluate(model, 0)


def work_hops(problem: Problem, work: Path) -> Callable[[], object]:
    folder = problem.folder(work)
    shutil.rmtree(f"{folder}{HOPS_SUFFIX}", ignore_errors=True)  # of another axis
    store = Store.open(folder)
    return lambda: Hops.open(store, 2)


def work_prediction(problem: Problem, work: Path) -> Callable[[], object]:
    predictor = Predictor(Path(problem.config(work).run.dir))
    store = predictor.store
    rows, stream = store.take(torch.arange(NEW_NODES) % store.num_nodes).numpy(), np.random.default_rng(1)
    neighbors = stream.integers(store.num_nodes, size=(NEW_NODES, 8)).tolist()
    columns = {"id": [store.num_nodes + row for row in range(NEW_NODES)], "neighbors": neighbors}
    table = pa.table({**columns, "features": pa.array(rows.tolist(), pa.list_(pa.float32()))})
    predictor.predict(table)
    return lambda: predictor.predict(table)


Prepare = Callable[[Problem, Path], None]
WorkOf = Callable[[Problem, Path], Callable[[], object]]
STAGES: Mapping[str, tuple[Prepare, WorkOf]] = {
    "partition, METIS": (make_source, work_partition("metis")),
    "partition, stream": (make_source, work_partition("stream")),
    "step, whole graph": (make_graph, work_step),
    "epoch, batches": (make_graph, work_epoch),
    "evaluation": (make_graph, work_evaluation),
    "hops, order 2": (make_graph, work_hops),
    "prediction": (make_run, work_prediction),
}


def measure(stage: str, problem: Problem, work: Path) -> dict[str, float]:
    """Wall and CPU seconds and the peak of private bytes of one stage, in a child of this process."""
    prepare, work_of = STAGES[stage]
    _in_child(lambda: prepare(problem, work))
    return _in_child(lambda: _measured(work_of, problem, work)) or {}


def _measured(work_of: WorkOf, problem: Problem, work: Path) -> dict[str, float]:
    with MemoryWatch() as watch:
        action = work_of(problem, work)
        started, cpu = time.perf_counter(), time.process_time()
        action()
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "private_bytes": watch.peak_private_bytes}


def _in_child(work: Callable[[], Any]) -> Any:
    """What the work gives, done in a forked child, whose memory is its own; this process has one thread."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "w") as out:
                out.write(json.dumps(work()))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit("growth: a stage has failed, as said above")
    return json.loads(text)


def ranks_facts(problem: Problem, work: Path, ranks: int, batch_nodes: int) -> dict[str, float]:
    """What a rank sends in a step of so many ranks that attend to each other's nodes, and its largest resident set."""
    _in_child(lambda: make_graph(problem, work))
    launch = Launch(ranks, 1, batch_nodes, ("attention.scope=world", "train.epochs=1"))
    steps = launch.train(str(problem.folder(work)))
    return {
        "sent_bytes": float(np.median([step["sent_bytes"] for step in steps])),
        "resident_bytes": max(step["peak_memory_bytes"] for step in steps),
    }


def planned(stage: str, problem: Problem, work: Path, rates: HostRates) -> dict[str, float]:
    """Seconds and private bytes of a stage by the performance model."""
    if stage.startswith("partition"):
        recipe = problem.recipe(work, stage.partition(", ")[2].lower(), work / "nowhere")
        found = plan_partition(recipe, SourceCounts(problem.nodes, problem.edges, FEATURES, None, "float32"))
        return {"seconds": sum(one.seconds for one in found.stages), "private_bytes": found.peak_bytes}
    more = {"epoch, batches": ("train.batch_nodes=5000",), "hops, order 2": ("relation.order=2",)}.get(stage, ())
    config = problem.config(work, *more)
    store = Store.open(problem.folder(work))
    counts = GraphCounts.of(store.manifest).with_patterns(store, config.relation.num_patterns)
    job = PlannedJob(config, counts, KnownRates(rates, True))
    if stage == "evaluation":
        seconds = sweep_work(config, counts, counts.nodes).seconds(rates)
        return {
            "seconds": seconds,
            "private_bytes": job.process_bytes(EVALUATION_BYTES) + job.sweep(writes=False).total,
        }
    if stage == "hops, order 2":
        hops = plan_hops(job)
        assert hops is not None
        return {"seconds": hops.seconds, "private_bytes": hops.memory_bytes}
    if stage == "prediction":
        found_stage = plan_prediction(job)
        return {"seconds": found_stage.seconds - rates.start_seconds, "private_bytes": found_stage.memory_bytes}
    training = plan_training(job)
    assert training.step_seconds is not None
    assert training.steps is not None
    seconds = training.step_seconds * (training.steps if stage.startswith("epoch") else 1)
    return {"seconds": seconds, "private_bytes": training.memory_bytes}
