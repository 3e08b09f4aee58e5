"""LDS (Franceschi et al., 2019): a graph learned as probabilities of edges, together with the network that uses it.

    python benchmarks/paper/lds.py --partition DIR [--seeds 0,1,2] [--epochs 100] [--memory 8GiB] [--json]

inner   a graph convolutional network learns the training labels, on a graph drawn anew in every step from the
        probabilities of all pairs of nodes
outer   every few steps the probabilities move against the gradient of the validation loss, taken through those steps
        in reverse and through the draws as if these were the probabilities themselves, and are cut to 0 .. 1

Half of the validation nodes are for the outer loss, the others choose the best epoch and end the training; `valid` is
the score of the latter. An epoch is one move of the probabilities with the steps before it. The start is the
partition's own graph: for a graph of neighbors, make the partition with --knn.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from bilevel import Graph, Problem, Settings, draw_graph, hypergradient, move, unroll
from torch import Tensor

from nfdist import seeds
from nfdist.config import DataConfig
from nfdist.errors import ConfigError, NfdistError
from nfdist.evaluation.scores import Scores, score
from nfdist.graph.split import split_of
from nfdist.memory import parse_bytes, peak_resident_bytes
from nfdist.model.task import Task
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.source_graph import TRAIN, UNASSIGNED, VALID
from nfdist.store.store import Store
from nfdist.world import World

MATRICES = 5  # of all pairs that a move of the probabilities holds at its peak


@dataclass
class Training:
    """What was learned: probabilities of edges [n, n], the scores of every epoch and the best of them."""

    probabilities: Tensor
    epochs: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None


def train_lds(
    features: Tensor,
    labels: Tensor,
    split: Tensor,
    graph: Adjacency | None,
    settings: Settings,
    seed: int,
    task: Task,
    metric: str = "auto",
) -> Training:
    """Learn a graph and its network; without a graph to start from, every probability starts at 0."""
    outer_rows, held_split = halve_validation(split, seed)
    train_rows = (split == TRAIN).nonzero()[:, 0]
    training = Training(starting_probabilities(graph, len(features), features.dtype))
    fruitless = 0
    for start in range(settings.epochs):
        own = seeds.derive(seed, "lds start", start)
        sample = partial(draw_graph, seed=own)
        problem = Problem(features, labels, task, train_rows, outer_rows, settings, own, sample)
        better = train_start(problem, training, partial(score, World(), task, metric), held_split)
        fruitless = 0 if better else fruitless + 1
        if fruitless == settings.restarts or len(training.epochs) >= settings.epochs:
            break
    return training


def train_start(problem: Problem, training: Training, judge: Callable[..., Scores], held_split: Tensor) -> bool:
    """Train a new network until it gets no better; whether it brought the best epoch of all."""
    settings, best_here, since_best, better = problem.settings, (-1.0, 0.0), 0, False
    for probabilities, weights in moves(problem, training):
        scores = judge(logits=averaged(problem, probabilities, weights), labels=problem.labels, split=held_split)
        values = {name: getattr(scores, name).value for name in ("train", "valid", "test")}
        epoch = {"epoch": len(training.epochs) + 1, **values, "valid_loss": scores.valid.loss}
        training.epochs.append(epoch)
        rank = _rank(epoch)
        if training.best is None or rank > _rank(training.best):
            training.best, better = epoch, True
        best_here, since_best = (rank, 0) if rank > best_here else (best_here, since_best + 1)
        if since_best == settings.patience or len(training.epochs) >= settings.epochs:
            break
    return better


def moves(problem: Problem, training: Training) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """The probabilities and the weights after each epoch of one start, without end."""
    settings, state, step = problem.settings, problem.first_state(), 0
    while True:
        rate = settings.outer_rate * settings.outer_decay ** len(training.epochs)
        states = unroll(problem, training.probabilities, state, step)
        move(training.probabilities, hypergradient(problem, training.probabilities, states, step), rate)
        state, step = states[-1], step + settings.steps
        yield training.probabilities, state[:4]


@torch.no_grad()
def averaged(problem: Problem, probabilities: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Logarithms of class probabilities, averaged over drawn graphs that no step has seen."""
    total = torch.zeros(())
    for number in range(1, problem.settings.samples + 1):
        total = total + problem.predict(weights, Graph(problem.sample(probabilities, -number))).softmax(1)
    return (total / problem.settings.samples).clamp(min=1e-30).log()


def halve_validation(split: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """The rows of the outer loss, and the split in which these belong to no part."""
    rows = (split == VALID).nonzero()[:, 0]
    if len(rows) < 2:
        raise ConfigError(f"LDS needs at least 2 validation nodes, got {len(rows)}: give --split more of them")
    outer = rows[torch.randperm(len(rows), generator=seeds.generator(seed, "lds validation"))[: len(rows) // 2]]
    held = split.clone()
    held[outer] = UNASSIGNED
    return outer, held


def starting_probabilities(graph: Adjacency | None, num_nodes: int, dtype: torch.dtype) -> Tensor:
    probabilities = torch.zeros(num_nodes, num_nodes, dtype=dtype)
    if graph is not None:
        probabilities[graph.targets.long(), graph.sources.long()] = 1
        probabilities[graph.sources.long(), graph.targets.long()] = 1
    return probabilities.fill_diagonal_(0)


def _rank(epoch: dict[str, Any]) -> tuple[float, float]:
    return (epoch["valid"] or 0.0, -(epoch["valid_loss"] or 0.0))


def estimated_bytes(num_nodes: int, num_features: int) -> int:
    """What a move of the probabilities of all pairs needs."""
    return 4 * (MATRICES * num_nodes**2 + 2 * num_nodes * num_features)


def refuse_beyond(limit: int, num_nodes: int, num_features: int) -> None:
    """Refuse a graph whose pairs do not fit."""
    needed = estimated_bytes(num_nodes, num_features)
    if needed > limit:
        raise ConfigError(
            f"LDS on {num_nodes:,} nodes needs {needed / 2**30:.1f} GiB for the pairs of its nodes, and has "
            f"{limit / 2**30:.1f} GiB: take a smaller graph, or more --memory"
        )


def available_bytes() -> int:
    """What this machine could still give a process."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Train every seed and sum up."""
    store = Store.open(options.partition)
    limit = available_bytes()
    limit = min(limit, parse_bytes("--memory", options.memory)) if options.memory else limit
    refuse_beyond(limit, store.num_nodes, store.num_features)
    task = Task(store.task, store.num_classes)
    if task.kind == "multi":
        raise ConfigError(f"LDS needs one label a node, and {options.partition} is a multi-label task")
    everyone = torch.arange(store.num_nodes)
    features, labels, graph = store.take(everyone), store.labels(everyone), store.induced(everyone)
    features = features.to_dense() if features.layout == torch.sparse_csr else features
    settings = Settings(epochs=options.epochs, samples=options.samples, outer_rate=options.outer_rate)
    per_seed, began = [], time.perf_counter()
    for seed in options.seeds:
        started = time.perf_counter()
        split = split_of(store, DataConfig(split=options.split), seed)
        best = train_lds(features.float(), labels, split, graph, settings, seed, task, options.metric).best
        assert best is not None
        chosen = {name: best[name] for name in ("valid", "test", "epoch")}
        per_seed.append({"seed": seed, **chosen, "seconds": time.perf_counter() - started})
    tests = [entry["test"] for entry in per_seed]
    return {
        "per_seed": per_seed,
        "test_mean": statistics.fmean(tests),
        "test_std": statistics.stdev(tests) if len(tests) > 1 else None,
        "seconds": time.perf_counter() - began,
        "peak_memory_bytes": peak_resident_bytes(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partition", required=True, metavar="DIR")
    parser.add_argument("--seeds", default=[0], type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--split", default="random:0.5/0.25/0.25", help="drawn for each seed; or stored")
    parser.add_argument("--metric", default="auto")
    parser.add_argument("--epochs", type=int, default=Settings.epochs)
    parser.add_argument("--samples", type=int, default=Settings.samples)
    parser.add_argument("--outer-rate", type=float, default=Settings.outer_rate)
    parser.add_argument("--memory", metavar="SIZE", help="the most it may need, such as 8GiB; otherwise what is free")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args()
    try:
        result = run(options)
    except NfdistError as error:
        print(f"lds: {error}", file=sys.stderr)
        sys.exit(2)
    if options.json:
        print(json.dumps(result))
        return
    for entry in result["per_seed"]:
        print("seed {seed}: valid {valid:.4f}, test {test:.4f} at epoch {epoch}, {seconds:.0f} s".format(**entry))
    deviation = "" if result["test_std"] is None else f" ± {result['test_std']:.4f}"
    print(f"test {result['test_mean']:.4f}{deviation}")


if __name__ == "__main__":
    main()
