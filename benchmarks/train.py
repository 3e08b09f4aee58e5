"""Training the published Amazon2M model: nfdist against a plain transcription, and its own ways against each other.

    python benchmarks/train.py [--scale 1.0] [--batch 100000] [--steps 20] [--partition DIR] [--only a,b,c,d,e,f]

a  a whole step, the making of its batch included, against the step of the published code: everything in memory, the
   edges of a batch found by masking those of the whole graph, and the formulation of benchmarks/transcription.py
b  how long an epoch waits for batches
c  steps and the making of their batches, against the same steps on batches made before
d  2 ranks of 1 thread against 1 rank of 2 threads. Each rank takes --batch nodes, so that a node has as many edges in
   its batch on either side; two halves of one batch would have half of them, and less to do
e  attention over the batches of both ranks against attention over a rank's own
f  bytes that a rank sends in a step, with a batch and with a tenth of it

Sides take turns, so that drift hits all of them. Figures a and c are of this process, medians over blocks of steps;
each side of a shows its memory, the peak resident set with mapped files, in a process of its own. The others are
epochs of `nfdist train` under torchrun, read from its metrics.
"""

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import torch
from attention import peak_resident_bytes
from transcription import Transcription

from nfdist import settings
from nfdist.config import Config
from nfdist.graph.graph import Graph
from nfdist.graph.relation import Relation
from nfdist.graph.split import split_of
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw
from nfdist.model.task import Task
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.rendezvous import Place
from nfdist.runs.run import METRICS_FILE, Run
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import Store
from nfdist.training.batches import Assembler, Batch
from nfdist.training.optimization import make_optimizer
from nfdist.training.prefetching import fetch
from nfdist.training.samplers import make_sampler
from nfdist.training.sampling import Position, Sampler
from nfdist.training.step import Counts, Stepper
from nfdist.world import World

CONFIG = Path(__file__).parents[1] / "launch" / "amazon2m-like.toml"
OVERRIDES = ("run.device=cpu", "observe.port=0", "train.evaluate_every=0", "train.checkpoint_every=0")
WORLD_ATTENTION = ("attention.scope=world",)
SEED = 0
BLOCK = 4  # steps that a side makes in a turn
WARM_UP = 2  # steps of a run that are not counted
IGNORED = -100  # the label that torch's cross-entropy leaves out

Step = dict[str, Any]  # a line of a run's metrics


@dataclass(frozen=True)
class Block:
    """Seconds a step, and the loss of each, over a few steps in a row."""

    seconds: float
    losses: list[float]


class Trained:
    """What a trainer of one rank trains with, without its evaluations and checkpoints."""

    def __init__(self, config: Config) -> None:
        world = World()
        graph = Graph.open(config, Place(), world)
        split = split_of(graph.store, config.data, SEED)
        model = make_model(config, graph.store)
        self.rate = config.train.learning_rate
        self.task = Task(graph.store.task, graph.store.num_classes)
        self.sampler = make_sampler(config, graph, split, world.size, SEED)
        self.assembler = Assembler(graph.loading_store, graph.loading_hops, config.relation, split, graph.loading)
        optimizer = make_optimizer(model, config.train)
        self.stepper = Stepper(model, model, optimizer, self.task, config.train, world, SEED)

    def fetched(self, positions: list[Position]) -> Block:
        epochs = positions[-1].epoch + 2
        with fetch(self.assembler, self.sampler, positions[0], epochs, torch.device("cpu")) as batches:
            started = time.perf_counter()
            losses = [self.step(batch) for batch in islice(batches, len(positions))]
        return Block((time.perf_counter() - started) / len(losses), losses)

    def preloaded(self, positions: list[Position]) -> Block:
        batches = [self.assembler.assemble(*self.sampler.take(position)) for position in positions]
        started = time.perf_counter()
        losses = [self.step(batch) for batch in batches]
        return Block((time.perf_counter() - started) / len(losses), losses)

    def step(self, batch: Batch) -> float:
        counts = Counts(self.task.count(batch.labels), batch.num_edges, batch.num_nodes)
        self.stepper.add(batch, batch.number, counts, last=True)
        return self.stepper.move(batch.number, self.rate).total


class Plain:
    """The training of the published code, on the batches that a sampler gives."""

    def __init__(self, config: Config, sampler: Sampler) -> None:
        store = Store.open(config.data.partition)
        everyone = torch.arange(store.num_nodes)
        graph = store.induced(everyone, loops=True)
        self.edge_index = torch.stack([graph.sources, graph.targets]).long()
        features, self.store = store.take(everyone), store
        self.features = features if features.layout == torch.sparse_csr else features.float()
        counts = store.split(everyone) == TRAIN
        self.labels = torch.where(counts, store.labels(everyone), IGNORED)
        self.model = make_model(config, store)
        self.optimizer = make_optimizer(self.model, config.train)
        self.edge_loss, self.sampler = config.train.edge_loss, sampler

    def steps(self, positions: list[Position]) -> Block:
        batches = [self.sampler.take(position)[0][0] for position in positions]
        started = time.perf_counter()
        losses = [self.step(batch, position.batch) for batch, position in zip(batches, positions, strict=True)]
        return Block((time.perf_counter() - started) / len(losses), losses)

    def step(self, node_ids: torch.Tensor, number: int) -> float:
        inside = torch.zeros(len(self.features), dtype=torch.bool)
        inside[node_ids] = True
        rows = torch.empty(len(self.features), dtype=torch.long)
        rows[node_ids] = torch.arange(len(node_ids))
        kept = inside[self.edge_index[0]] & inside[self.edge_index[1]]
        sources, targets = rows[self.edge_index[:, kept]]
        relation = Relation.build(Adjacency.from_edges(sources, targets, len(node_ids)))
        # The first steps draw what nfdist draws, so that losses can be compared; the timed ones draw more cheaply.
        draw = Draw(SEED, number, node_ids) if number < BLOCK else None
        transcription = Transcription(self.model, relation)
        loss = transcription.loss(self._rows(node_ids), self.labels[node_ids], self.edge_loss, draw)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def _rows(self, node_ids: torch.Tensor) -> torch.Tensor:
        """Features; torch cannot take rows of sparse ones."""
        return self.store.take(node_ids) if self.features.layout == torch.sparse_csr else self.features[node_ids]


def make_model(config: Config, store: Any) -> NodeFormer:
    sections = (config.model, config.attention, config.relation)
    return NodeFormer(store.num_features, store.num_classes, *sections, seed=SEED)


def upcoming(sampler: Sampler, position: Position) -> list[Position]:
    """The positions of a block of steps, and the one after it."""
    positions = [position]
    for _ in range(BLOCK):
        positions.append(sampler.take(positions[-1])[1])
    return positions


def take_turns(config: Config, steps: int, only: set[str]) -> dict[str, float]:
    """Seconds a step of every side, after a block that is for warmth and to see that all sides make the same steps."""
    trained = Trained(config)
    sides: dict[str, Callable[[list[Position]], Block]] = {"fetched": trained.fetched}
    if "c" in only:
        sides["preloaded"] = Trained(config).preloaded
    if "a" in only:
        sides["plain"] = Plain(config, trained.sampler).steps
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    after = Position()
    for turn in range(1 + -(-steps // BLOCK)):
        *positions, after = upcoming(trained.sampler, after)
        blocks = {name: side(positions) for name, side in sides.items()}
        for name, block in blocks.items():
            print(f"  turn {turn}, {name}: {block.seconds:.2f} s a step", flush=True)
            if turn:
                seconds[name].append(block.seconds)
            if turn == 0 or name != "plain":  # whose later draws are its own
                # Equal losses, one after another, take equal batches, draws, gradients and moves of the weights.
                apart = max(abs(a - b) for a, b in zip(block.losses, blocks["fetched"].losses, strict=True))
                assert apart < 1e-3, blocks
    return {name: statistics.median(values) for name, values in seconds.items()}


def peak_gigabytes(side: str, config: Config) -> float:
    """The peak of a fresh process that makes a block of steps on one side."""
    given = ["--partition", config.data.partition, "--batch", str(config.train.batch_nodes)]
    command = [sys.executable, __file__, "--memory-of", side, *given]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout) / 1e9


def print_peak_bytes(side: str, config: Config) -> None:
    trained = Trained(config)
    steps = trained.fetched if side == "nfdist" else Plain(config, trained.sampler).steps
    steps(upcoming(trained.sampler, Position())[:-1])
    print(peak_resident_bytes())


@dataclass(frozen=True)
class Launch:
    """A way to start `nfdist train`."""

    ranks: int
    threads: int
    batch_nodes: int
    overrides: tuple[str, ...] = ()

    def train(self, partition: str) -> list[Step]:
        """The steps of an epoch. Their `wall_seconds`, since the step before, hold what `seconds` does not: meeting."""
        with tempfile.TemporaryDirectory() as folder:
            directory, errors = Path(folder) / "run", Path(folder) / "stderr"
            given = (f"data.partition={partition}", f"run.dir={directory}", f"train.batch_nodes={self.batch_nodes}")
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            command += ["--nproc-per-node", str(self.ranks), "-m", "nfdist", "train", str(CONFIG), "train.epochs=1"]
            command += [*OVERRIDES, *given, *self.overrides]
            environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
            with (
                errors.open("w") as stderr,
                subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=stderr) as process,
            ):
                arrivals = watch(process, directory / METRICS_FILE)
            if process.returncode:
                sys.exit(errors.read_text())
            steps = [line for line in Run.open(directory).metrics() if line["kind"] == "step"]
        clock = pairwise([math.nan, *arrivals])
        for step, (before, now) in zip(steps, clock, strict=True):
            step["wall_seconds"] = now - before
        return steps


def watch(process: subprocess.Popen[bytes], path: Path) -> list[float]:
    """When each line of a file appeared, until the process ends."""
    arrivals: list[float] = []
    while process.poll() is None:
        time.sleep(0.02)
        lines = path.read_bytes().count(b"\n") if path.exists() else 0
        arrivals += [time.perf_counter()] * (lines - len(arrivals))
    return arrivals


def train_in_turns(launches: Iterable[Launch], partition: str, repeats: int) -> dict[Launch, list[Step]]:
    """The steps of all epochs of every launch."""
    steps: dict[Launch, list[Step]] = {launch: [] for launch in launches}
    for _ in range(repeats):
        for launch in steps:
            epoch = launch.train(partition)
            print(f"  {launch}: {median(epoch, 'wall_seconds'):.2f} s a step", flush=True)
            steps[launch] += epoch
    return steps


def median(steps: list[Step], key: str) -> float:
    """Without the first steps of every epoch."""
    return float(statistics.median(step[key] for step in steps if step["step"] > WARM_UP))


def show(what: str, unit: str, sides: dict[str, float], wanted: str = "") -> None:
    left, right = sides.values()
    digits = 2 if unit in ("s", "GB") else 0
    figures = "".join(f"{name:>16}{value:>12,.{digits}f}" for name, value in sides.items())
    print(f"{f'{what}, {unit}':38}{figures}{left / right:9.3f}   {wanted}", flush=True)


def show_turns(config: Config, steps: int, only: set[str]) -> None:
    seconds = take_turns(config, steps, only)
    ours = seconds["fetched"]
    if "a" in only:
        show("a  whole step", "s", {"plain": seconds["plain"], "nfdist": ours}, ">= 3")
        show("   peak memory", "GB", {side: peak_gigabytes(side, config) for side in ("plain", "nfdist")})
    if "c" in only:
        show("c  step", "s", {"fetched": ours, "preloaded": seconds["preloaded"]}, "<= 1.05")


def show_epochs(config: Config, repeats: int, only: set[str]) -> None:
    batch = config.train.batch_nodes
    alone, pair, together = Launch(1, 2, batch), Launch(2, 1, batch), Launch(2, 1, batch, WORLD_ATTENTION)
    needed = {alone: {"b", "d"}, pair: {"d", "e"}, together: {"e"}}
    steps = train_in_turns([launch for launch in needed if only & needed[launch]], config.data.partition, repeats)
    seconds = {launch: median(made, "wall_seconds") for launch, made in steps.items()}
    if "b" in only:
        waited, spent = (sum(step[key] for step in steps[alone]) for key in ("wait_seconds", "seconds"))
        show("b  waiting for batches", "s", {"waited": waited, "epochs": spent}, "< 0.05")
    if "d" in only:
        rates = [median(steps[launch], "nodes") / seconds[launch] for launch in (pair, alone)]
        show("d  throughput", "nodes/s", {"2 ranks x 1": rates[0], "1 rank x 2": rates[1]}, ">= 0.85")
    if "e" in only:
        show("e  step", "s", {"scope world": seconds[together], "scope rank": seconds[pair]}, "<= 1.05")


def show_bytes(config: Config) -> None:
    batches = (config.train.batch_nodes, config.train.batch_nodes // 10)
    for what, overrides, wanted in (
        ("f  sent in a step", WORLD_ATTENTION, "= 1"),
        ("   relation.scope=world", (*WORLD_ATTENTION, "relation.scope=world"), ""),
    ):
        launches = [Launch(2, 1, batch, overrides) for batch in batches]
        steps = train_in_turns(launches, config.data.partition, repeats=1)
        sides = {f"{launch.batch_nodes:,} nodes": median(made, "sent_bytes") for launch, made in steps.items()}
        show(what, "bytes a rank", sides, wanted)


def compare(config: Config, options: argparse.Namespace) -> None:
    manifest = Store.open(config.data.partition).manifest
    print(
        f"{manifest.num_nodes:,} nodes, {manifest.num_edges:,} edges, batches of {config.train.batch_nodes:,} nodes, "
        f"{torch.get_num_threads()} threads"
    )
    print("each line: both sides, left / right, and what is wanted", flush=True)
    if options.only & {"a", "c"}:
        show_turns(config, options.steps, options.only)
    if options.only & {"b", "d", "e"}:
        show_epochs(config, options.repeats, options.only)
    if "f" in options.only:
        show_bytes(config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=20, help="of each side, for a and c")
    parser.add_argument("--repeats", type=int, default=3, help="epochs of each side, for b, d and e")
    parser.add_argument("--partition", help="a partition to train on, instead of making one")
    parser.add_argument("--only", type=lambda text: set(text.split(",")), default=set("abcdef"))
    parser.add_argument("--memory-of", choices=("nfdist", "plain"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.only <= set("abcdef"):
        parser.error(f"--only must name some of a,b,c,d,e,f, got {','.join(sorted(options.only))}")
    with tempfile.TemporaryDirectory() as folder:
        directory = options.partition or str(Path(folder) / "partition")
        if not options.partition:
            partition(Recipe.build("amazon2m-like", {"scale": options.scale, "parts": 8, "out": directory}))
        given = (f"data.partition={directory}", f"train.batch_nodes={options.batch}")
        config = settings.load(CONFIG, [*OVERRIDES, *given])
        if options.memory_of:
            print_peak_bytes(options.memory_of, config)
        else:
            compare(config, options)


if __name__ == "__main__":
    main()
