"""Time and memory of one epoch against the number of nodes, on 20News: NodeFormer and the structure learners.

    python benchmarks/paper/scaling.py [--partition partitions/20news-k5] [--methods NodeFormer,LDS] [--out FILE]

The graph of n nodes is what the graph of neighbors has among the first n of a fixed random order. An epoch is one
training step of the whole graph; of LDS and ProGNN, one move of probabilities or graph with the steps of the network;
of BGCN, a step on a drawn graph, with a twentieth of the inference that comes every 20 epochs. The settings are those
of the paper's run on 20News. Each point is measured in a process of its own: the median time of a few epochs after the
first, in seconds of the processor, all threads together, and the growth of the peak resident set over what the loaded
data took. A method ends at the size where it would need more than --memory or --seconds an epoch, as its last point
foretells if it grows with the square of the nodes. With --methods, those of other methods stay in FILE as they are.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import bgcn
import prognn
import torch
from bilevel import Problem, Settings, draw_graph
from lds import Training, halve_validation, moves
from pairwise import Nodes, matrix_of

from nfdist import seeds
from nfdist import settings as configurations
from nfdist.config import Config
from nfdist.errors import ConfigError, NfdistError
from nfdist.files import replace_file
from nfdist.graph.relation import build_relations
from nfdist.graph.split import split_of
from nfdist.memory import parse_bytes, peak_resident_bytes
from nfdist.model.build import build_model
from nfdist.model.task import Task
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import Store
from nfdist.training.batches import Batch
from nfdist.training.optimization import make_optimizer
from nfdist.training.sampling import Position
from nfdist.training.step import Counts, Stepper, replicate
from nfdist.world import World

CONFIG = Path(__file__).parents[2] / "launch" / "paper" / "20news-k5.toml"
LEARNED = ("model.name=idgl", "relation.order=1")
OVERRIDES: dict[str, tuple[str, ...]] = {
    "NodeFormer": (),
    "LDS": (),
    "ProGNN": (),
    "BGCN": (),
    "IDGL": LEARNED,
    "IDGL-Anch": (*LEARNED, "model.idgl.anchors=500"),
    "GLCN": ("model.name=glcn", "relation.order=1"),
    "GLCN-Pairs": ("model.name=glcn", "relation.order=0"),
    "VGCN": ("model.name=vgcn", "relation.order=1"),
}
FIRST_NODES = 1000
SEED = 0


@dataclass(frozen=True)
class Point:
    """Seconds of an epoch of a method, and what it added to the peak resident set."""

    method: str
    nodes: int
    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Data:
    """The first nodes of a fixed random order, with the edges among them."""

    node_ids: torch.Tensor
    features: torch.Tensor
    labels: torch.Tensor
    split: torch.Tensor
    graph: Adjacency
    task: Task

    @staticmethod
    def load(config: Config, nodes: int) -> "Data":
        store = Store.open(config.data.partition)
        order = seeds.numpy_generator(SEED, "scaling").permutation(store.num_nodes)
        node_ids = torch.from_numpy(order[:nodes]).sort().values
        split = split_of(store, config.data, SEED)[node_ids]
        task = Task(store.task, store.num_classes)
        features, labels, graph = store.take(node_ids), store.labels(node_ids), store.induced(node_ids)
        return Data(node_ids, features, labels, split, graph, task)


def trained_epoch(config: Config, data: Data) -> Callable[[], object]:
    """One training step of the whole graph by nfdist, whatever model the configuration names."""
    nodes = len(data.features)
    model = build_model(config, data.features.shape[1], data.task.num_classes, SEED, num_nodes=nodes)
    labeled = (data.split == TRAIN).nonzero()[:, 0]
    labels, relations = data.labels[labeled], build_relations(data.graph, config.relation.order)
    batch = Batch(torch.arange(nodes), data.features, labeled, labels, relations, None, Position())
    counts = Counts(data.task.count(labels), batch.num_edges, batch.num_nodes)
    optimizer = make_optimizer(model, config.train)
    stepper = Stepper(model, replicate(model, World()), optimizer, data.task, config.train, World(), SEED)
    numbers = iter(range(1 << 30))

    def step() -> None:
        number = next(numbers)
        stepper.add(batch, number, counts, last=True)
        stepper.move(number, config.train.learning_rate)

    return step


def lds_epoch(config: Config, data: Data) -> Callable[[], object]:
    """One move of the probabilities."""
    nodes, (outer_rows, _) = dense_nodes(data), halve_validation(data.split, SEED)
    train_rows = (data.split == TRAIN).nonzero()[:, 0]
    settings, sample = Settings(), partial(draw_graph, seed=SEED)
    problem = Problem(nodes.features, data.labels, data.task, train_rows, outer_rows, settings, SEED, sample)
    steps = moves(problem, Training(matrix_of(data.graph, len(nodes.features), nodes.features.dtype)))
    return lambda: next(steps)


def prognn_epoch(config: Config, data: Data) -> Callable[[], object]:
    """One move of the graph, and the network's steps after it."""
    nodes, settings = dense_nodes(data), prognn.Settings()
    steps = prognn.epochs(prognn.problem_of(nodes, Settings(steps=settings.steps), SEED), nodes, settings)
    return lambda: next(steps)


def bgcn_epoch(config: Config, data: Data) -> Callable[[], object]:
    """One drawn graph with its step, and of the posterior what comes to an epoch."""
    usual, endless = bgcn.Settings(), 1 << 30
    share = usual.iterations // usual.posterior_every
    settings = bgcn.Settings(endless, first_epochs=1, posterior_every=1, iterations=share, averaged=endless)
    steps = bgcn.predictions(dense_nodes(data), settings, SEED)
    return lambda: next(steps)


def dense_nodes(data: Data) -> Nodes:
    """The data as learners of all pairs take it."""
    features = data.features.to_dense() if data.features.layout == torch.sparse_csr else data.features
    return Nodes(features, data.labels, data.split, data.graph, data.task)


EPOCHS = {"LDS": lds_epoch, "ProGNN": prognn_epoch, "BGCN": bgcn_epoch}


def measure(method: str, config: Config, nodes: int, epochs: int, seconds_limit: float) -> Point:
    """The point of this process; epochs that take long are measured once."""
    data = Data.load(config, nodes)
    before = peak_resident_bytes()
    epoch = EPOCHS.get(method, trained_epoch)(config, data)
    took: list[float] = []
    while len(took) <= epochs and sum(took) <= seconds_limit:
        started = time.process_time()
        epoch()
        took.append(time.process_time() - started)
    grown = max(peak_resident_bytes() - before, 0)  # the system counts a few pages late, so a peak may seem to fall
    return Point(method, nodes, statistics.median(took[1:] or took), grown)


def foretold(last: Point, nodes: int) -> Point:
    """What a point would be if time and memory grew with the square of the nodes."""
    growth = (nodes / last.nodes) ** 2
    return Point(last.method, nodes, last.seconds * growth, round(last.peak_bytes * growth))


def excess(point: Point, memory_limit: int, seconds_limit: float) -> str | None:
    """How a point is beyond the limits, if it is."""
    if point.peak_bytes > memory_limit:
        return f"{point.peak_bytes / 2**30:.1f} GiB"
    return f"{point.seconds:.0f} s an epoch" if point.seconds > seconds_limit else None


def measure_apart(method: str, nodes: int, options: argparse.Namespace) -> Point:
    """A point, measured in a process of its own."""
    words = [sys.executable, __file__, "--partition", options.partition, "--measure", method, "--sizes", str(nodes)]
    words += ["--epochs", str(options.epochs), "--seconds", str(options.seconds)]
    done = subprocess.run(words, capture_output=True, text=True, env=dict(os.environ))
    if done.returncode:
        line = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
        raise ConfigError(f"{method} on {nodes:,} nodes: {line}")
    return Point(**json.loads(done.stdout.splitlines()[-1]))


def follow(method: str, sizes: Sequence[int], options: argparse.Namespace) -> tuple[list[Point], str | None]:
    """The points of a method up to the size that it cannot do, and why it ended there."""
    limits = parse_bytes("--memory", options.memory), options.seconds
    points: list[Point] = []
    for nodes in sizes:
        if points and (why := excess(foretold(points[-1], nodes), *limits)):
            return points, f"would need {why} for {nodes:,} nodes"
        try:
            points.append(measure_apart(method, nodes, options))
        except ConfigError as error:
            return points, str(error)
        last = points[-1]
        print(f"{method:<12} {nodes:>8,} {last.seconds:>10.3f} s {last.peak_bytes / 2**20:>10.0f} MiB", flush=True)
        if why := excess(last, *limits):
            return points, f"needed {why} for {nodes:,} nodes"
    return points, None


def doubling(num_nodes: int) -> list[int]:
    """1,000 nodes, twice as many, and so on up to all."""
    doublings = max(0, math.ceil(math.log2(num_nodes / FIRST_NODES)))
    return [*(FIRST_NODES << power for power in range(doublings)), num_nodes]


def compare(sizes: Sequence[int], options: argparse.Namespace) -> dict[str, Any]:
    """All points of all methods, and why some have no more."""
    print(f"{'method':<12} {'nodes':>8} {'an epoch':>12} {'peak growth':>14}")
    points: list[dict[str, Any]] = []
    ended: dict[str, str] = {}
    for method in options.methods:
        measured, why = follow(method, sizes, options)
        points += [asdict(point) for point in measured]
        if why:
            ended[method] = why
            print(f"{method:<12} {why}", flush=True)
    limits = {"memory": options.memory, "seconds": options.seconds}
    return {"points": points, "ended": ended, "limits": limits, "threads": torch.get_num_threads()}


def joined(found: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """What was found, and what had been of other methods; limits and threads are those of now."""
    measured = {point["method"] for point in found["points"]} | set(found["ended"])
    points = [point for point in before["points"] if point["method"] not in measured]
    ended = {method: why for method, why in before["ended"].items() if method not in measured}
    return {**found, "points": [*points, *found["points"]], "ended": {**ended, **found["ended"]}}


def configured(method: str, partition: str) -> Config:
    return configurations.load(CONFIG, [f"data.partition={json.dumps(partition)}", *OVERRIDES[method]])


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partition", default="partitions/20news-k5", metavar="DIR")
    parser.add_argument("--methods", default=list(OVERRIDES), type=lambda text: text.split(","))
    parser.add_argument(
        "--sizes", type=lambda text: [int(part) for part in text.split(",")], help="default: 1000, 2000, 4000, ..., all"
    )
    parser.add_argument("--epochs", type=int, default=3, help="epochs measured, after the first")
    parser.add_argument("--memory", default="8GiB", metavar="SIZE")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the points as JSON")
    parser.add_argument("--measure", choices=list(OVERRIDES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.methods) - set(OVERRIDES)
    if unknown:
        parser.error(f"there is no method {', '.join(sorted(unknown))}: choose among {', '.join(OVERRIDES)}")
    return options


def main() -> None:
    options = read_options()
    try:
        if options.measure:
            config = configured(options.measure, options.partition)
            point = measure(options.measure, config, options.sizes[0], options.epochs, options.seconds)
            print(json.dumps(asdict(point)))
            return
        num_nodes = Store.open(options.partition).num_nodes
        result = compare(options.sizes or doubling(num_nodes), options)
        if options.out:
            result = joined(result, json.loads(options.out.read_text())) if options.out.exists() else result
            replace_file(options.out, json.dumps(result, indent=1) + "\n")
    except NfdistError as error:
        print(f"scaling: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
