"""What smoothing costs beside the exact evaluation before it: the paper's Amazon2M model on a graph of that shape.

    python benchmarks/smoothing.py [--partition DIR] [--scale 1.0] [--method metis] [--pairs 3] [--threads 2]

Without --partition it makes one of 8 parts first (minutes at full scale). The model is untrained, since its answers
matter to no cost; strengths are a correction and a smoothing, the most there can be. Evaluations and smoothings take
turns in one process, and times are medians after a first run for warmth. Private memory is sampled in a process of its
own, which is limited to 2 GiB and chooses.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from evaluate import GIB, build_graph, build_model, seconds

from nfdist.evaluation.full import FullGraph
from nfdist.evaluation.scores import score
from nfdist.evaluation.smoothed import Smoothed, smooth
from nfdist.evaluation.smoothing import AUTO, Rows, Strengths
from nfdist.memory import MemoryWatch
from nfdist.model.task import Task
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import Store
from nfdist.world import World

MOST = Strengths(0.8, AUTO, 0.8)
LIMIT = 2 * GIB


class Sides:
    """An evaluation, and smoothings of its answers."""

    def __init__(self, store: Store, memory_bytes: int | None = None) -> None:
        self._graph: FullGraph = build_graph(store, World(), memory_bytes)
        self._model = build_model(store.num_features)
        self._task, nodes = Task(store.task, store.num_classes), torch.arange(store.num_nodes)
        self._labels, self._split = store.labels(nodes), store.split(nodes)
        self.evaluate()
        self._raw = score(World(), self._task, "accuracy", self._logits, self._labels, self._split)

    def evaluate(self) -> None:
        self._logits = self._graph.evaluate(self._model, 0).logits

    def apply(self) -> Smoothed | None:
        return self._smooth(MOST)

    def choose(self) -> Smoothed | None:
        return self._smooth(None)

    def _smooth(self, strengths: Strengths | None) -> Smoothed | None:
        known = Rows(self._task, self._logits, self._labels, self._split == TRAIN)
        return smooth(self._graph, World(), known, self._split, self._raw, strengths)


def in_turns(store: Store, pairs: int) -> dict[str, float]:
    made = Sides(store)
    sides: dict[str, Callable[[], object]] = {"evaluate": made.evaluate, "apply": made.apply, "choose": made.choose}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(pairs + 1):
        for name, side in sides.items():
            times[name].append(seconds(side))
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def limited(store: Store, pairs: int) -> dict[str, float]:
    with MemoryWatch() as watch:
        made = Sides(store, LIMIT)
        evaluating = seconds(made.evaluate)
        before = watch.peak_private_bytes
        choosing = seconds(made.choose)
    return {
        "private": watch.peak_private_bytes,
        "before": before,
        "evaluate": evaluating,
        "choose": choosing,
        "apply": seconds(made.apply),
    }


SIDES: dict[str, Callable[[Store, int], dict[str, float]]] = {"turns": in_turns, "limited": limited}


def measure(side: str, options: argparse.Namespace, directory: Path) -> dict[str, float]:
    """The figures of a side, from a process of its own."""
    numbers = ("--pairs", str(options.pairs), "--threads", str(options.threads))
    words = [sys.executable, __file__, "--side", side, "--partition", str(directory), *numbers]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(f"  {side}: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()), flush=True)
    return figures


def compare(options: argparse.Namespace, directory: Path) -> None:
    turns, small = (measure(side, options, directory) for side in SIDES)
    evaluate, apply, choose = turns["evaluate"], turns["apply"], turns["choose"]
    print(f"\n{'':36}{'smoothing':>12}{'other':>12}{'ratio':>8}   wanted")
    rows = (
        ("s, applying, against evaluation", apply, evaluate, apply / evaluate, "<= 2"),
        ("s, choosing too, against applying", choose, apply, choose / apply, "<= 4"),
        ("GiB private, limited to 2", small["private"] / GIB, LIMIT / GIB, small["private"] / LIMIT, "<= 1"),
        ("s, applying, both limited", small["apply"], small["evaluate"], small["apply"] / small["evaluate"], ""),
        ("s, choosing too, limited", small["choose"], small["apply"], small["choose"] / small["apply"], ""),
    )
    for name, left, right, ratio, wanted in rows:
        print(f"{name:36}{left:12.2f}{right:12.2f}{ratio:8.2f}   {wanted}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partition", type=Path, help="a partition of amazon2m-like")
    parser.add_argument("--scale", type=float, default=1.0, help="of the partition that is made without --partition")
    parser.add_argument("--method", default="metis", help="how that is divided")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.side:
        print(json.dumps(SIDES[options.side](Store.open(options.partition), options.pairs)))
        return
    with tempfile.TemporaryDirectory() as folder:
        directory = options.partition
        if directory is None:
            directory = Path(folder) / "partition"
            recipe = {"scale": options.scale, "parts": 8, "out": str(directory), "method": options.method}
            partition(Recipe.build("amazon2m-like", recipe))
        compare(options, directory)


if __name__ == "__main__":
    main()
