"""What the learners beside the trainer share: a graph as a matrix of all pairs, what that takes, and a run of seeds.

lds.py, prognn.py and bgcn.py are each a `PairwiseLearner` and a call of `run_command`.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nfdist.config import DataConfig
from nfdist.errors import ConfigError, NfdistError
from nfdist.evaluation.scores import score
from nfdist.graph.split import split_of
from nfdist.memory import parse_bytes, peak_resident_bytes
from nfdist.model.task import Task
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.store import Store
from nfdist.world import World


@dataclass(frozen=True)
class Nodes:
    """The nodes of a graph in memory, with the split of a seed; no graph is None."""

    features: Tensor
    labels: Tensor
    split: Tensor
    graph: Adjacency | None
    task: Task
    metric: str = "auto"

    def scores(self, epoch: int, logits: Tensor) -> dict[str, Any]:
        """An epoch as it is kept: its number, the score of every part of the split, and the validation loss."""
        scores = score(World(), self.task, self.metric, logits=logits, labels=self.labels, split=self.split)
        values = {name: getattr(scores, name).value for name in ("train", "valid", "test")}
        return {"epoch": epoch, **values, "valid_loss": scores.valid.loss}


@dataclass(frozen=True)
class PairwiseLearner:
    """A learner of all pairs: the matrices of these that it holds at its peak, and how it trains a seed.

    `train` gives the best epoch; `options` are those of its settings that the command line has.
    """

    name: str
    matrices: int
    settings: Any
    options: Sequence[str]
    train: Callable[[Nodes, Any, int], dict[str, Any]]

    def estimated_bytes(self, num_nodes: int, num_features: int) -> int:
        """What training needs: matrices of all pairs, and features with what is made of them."""
        return 4 * (self.matrices * num_nodes**2 + 2 * num_nodes * num_features)

    def refuse_beyond(self, limit: int, num_nodes: int, num_features: int) -> None:
        """Refuse a graph whose pairs do not fit."""
        needed = self.estimated_bytes(num_nodes, num_features)
        if needed > limit:
            raise ConfigError(
                f"{self.name} on {num_nodes:,} nodes needs {needed / 2**30:.1f} GiB for the pairs of its nodes, and "
                f"has {limit / 2**30:.1f} GiB: take a smaller graph, or more --memory"
            )

    def chosen_settings(self, options: argparse.Namespace) -> Any:
        """The settings with those of the command line: counts from 1, weights and rates from 0."""
        chosen = {name: getattr(options, name) for name in self.options}
        for name, value in chosen.items():
            least = int(isinstance(value, int))
            if not least <= value < float("inf"):
                raise ConfigError(f"--{name.replace('_', '-')} must be at least {least} and finite, got {value}")
        return replace(self.settings, **chosen)


def matrix_of(graph: Adjacency | None, num_nodes: int, dtype: torch.dtype) -> Tensor:
    """The edges of a graph in both directions as zeros and ones [n, n], without self-loops."""
    matrix = torch.zeros(num_nodes, num_nodes, dtype=dtype)
    if graph is not None:
        matrix[graph.targets.long(), graph.sources.long()] = 1
        matrix[graph.sources.long(), graph.targets.long()] = 1
    return matrix.fill_diagonal_(0)


def rank_of(epoch: dict[str, Any]) -> tuple[float, float]:
    """What makes an epoch better than another: its validation score, and then its loss."""
    return (epoch["valid"] or 0.0, -(epoch["valid_loss"] or 0.0))


def available_bytes() -> int:
    """What this machine could still give a process."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def run(learner: PairwiseLearner, options: argparse.Namespace) -> dict[str, Any]:
    """Train every seed and sum up."""
    settings, store = learner.chosen_settings(options), Store.open(options.partition)
    limit = available_bytes()
    limit = min(limit, parse_bytes("--memory", options.memory)) if options.memory else limit
    learner.refuse_beyond(limit, store.num_nodes, store.num_features)
    task = Task(store.task, store.num_classes)
    if task.kind == "multi":
        raise ConfigError(f"{learner.name} needs one label a node, and {options.partition} is a multi-label task")
    everyone = torch.arange(store.num_nodes)
    features, labels, graph = store.take(everyone), store.labels(everyone), store.induced(everyone)
    features = (features.to_dense() if features.layout == torch.sparse_csr else features).float()
    per_seed, began = [], time.perf_counter()
    for seed in options.seeds:
        started = time.perf_counter()
        split = split_of(store, DataConfig(split=options.split), seed)
        best = learner.train(Nodes(features, labels, split, graph, task, options.metric), settings, seed)
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


def run_command(learner: PairwiseLearner, manual: str | None) -> None:
    """Read the command line, train, and print the scores."""
    parser = argparse.ArgumentParser(description=manual, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partition", required=True, metavar="DIR")
    parser.add_argument("--seeds", default=[0], type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--split", default="random:0.5/0.25/0.25", help="drawn for each seed; or stored")
    parser.add_argument("--metric", default="auto")
    for name in learner.options:
        default = getattr(learner.settings, name)
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=type(default), default=default, help=f"default {default}"
        )
    parser.add_argument("--memory", metavar="SIZE", help="the most it may need, such as 8GiB; otherwise what is free")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args()
    try:
        result = run(learner, options)
    except NfdistError as error:
        print(f"{learner.name.lower()}: {error}", file=sys.stderr)
        sys.exit(2)
    if options.json:
        print(json.dumps(result))
        return
    for entry in result["per_seed"]:
        print("seed {seed}: valid {valid:.4f}, test {test:.4f} at epoch {epoch}, {seconds:.0f} s".format(**entry))
    deviation = "" if result["test_std"] is None else f" ± {result['test_std']:.4f}"
    print(f"test {result['test_mean']:.4f}{deviation}")
