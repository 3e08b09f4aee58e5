"""Train one contender for so many seconds on a partition and evaluate it on the way: facts as a line of JSON.

    python benchmarks/scoreboard/contender.py NAME SECONDS [--evaluations 4] [--sampled] -- CONFIG.toml [key=value ...]

The seconds are those of training steps, batches included; loading and evaluations are counted by themselves. What does
not fit the memory that the process may have is said, and ends what it was of: a training goes on without evaluations.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from contender_graph import ContenderGraph
from contenders import CONTENDERS, SEED, Contender

from nfdist import settings
from nfdist.errors import NfdistError
from nfdist.memory import MemoryWatch, is_shortage

Found = TypeVar("Found")


class ShortageError(Exception):
    """There was not enough memory; the text says for what."""


def within_memory(what: str, work: Callable[[], Found]) -> Found:
    """What the work gives; `ShortageError` where memory is too small for it."""
    try:
        return work()
    except (MemoryError, OSError, RuntimeError, SystemError, ValueError) as error:
        # DGL's own error is a plain Exception, whose text has the allocation that failed further down.
        if not is_shortage(error):
            raise
        raise ShortageError(f"out of memory in {what}") from None
    except Exception as error:
        if "bad_alloc" not in str(error) and "out of memory" not in str(error).lower():
            raise
        raise ShortageError(f"out of memory in {what}") from None


class Course:
    """The training of a contender: its curve so far, and what evaluations took."""

    def __init__(self, graph: ContenderGraph, contender: Contender, sampled: bool) -> None:
        self.graph, self.contender, self.sampled = graph, contender, sampled
        self.steps = self.nodes = self.train_bytes = self.evaluate_bytes = 0
        self.train_seconds = 0.0
        self.evaluate_seconds: list[float] = []
        self.curve: list[dict[str, float]] = []
        self.notes: list[str] = []
        self.broken = ""  # why there are no evaluations

    def train(self, seconds: float) -> None:
        """Steps until so many seconds of them were made in all; at least one."""
        with MemoryWatch() as watch:
            try:
                while not self.steps or self.train_seconds < seconds:
                    started = time.perf_counter()
                    self.nodes += within_memory("a training step", self.contender.step)
                    self.train_seconds += time.perf_counter() - started
                    self.steps += 1
            finally:
                self.train_bytes = max(self.train_bytes, watch.peak_private_bytes)

    def evaluate(self) -> None:
        """Score the answers; what has no room is tried once, and scored by nfdist where that can."""
        if not self.broken:
            with MemoryWatch() as watch:
                started = time.perf_counter()
                try:
                    answers = within_memory("the evaluation", lambda: self.contender.answers(self.sampled))
                    self.evaluate_seconds.append(time.perf_counter() - started)
                    self._note(answers)
                except ShortageError as error:
                    self.broken = f"{error} of the whole graph"
            self.evaluate_bytes = max(self.evaluate_bytes, watch.peak_private_bytes)
        if self.broken and hasattr(self.contender, "answers_by_nfdist"):
            gc.collect()
            self._note(self.contender.answers_by_nfdist())

    def _note(self, answers: torch.Tensor) -> None:
        self.curve.append({"seconds": self.train_seconds, **self.graph.scores(answers)})

    @property
    def costly(self) -> bool:
        """Whether evaluations would take more time than training."""
        return bool(self.evaluate_seconds) and 4 * self.evaluate_seconds[-1] > self.train_seconds

    def facts(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "train_seconds": self.train_seconds,
            "nodes_per_second": self.nodes / self.train_seconds if self.train_seconds else None,
            "train_private_bytes": self.train_bytes,
            "evaluate_seconds": min(self.evaluate_seconds, default=None),
            "evaluate_private_bytes": self.evaluate_bytes if self.evaluate_seconds else None,
            "evaluation_failed": self.broken,
            "scored_by_nfdist": bool(self.broken and self.curve),
            "curve": self.curve,
            **({"test": self.curve[-1]["test"]} if self.curve else {}),
        }


def run(options: argparse.Namespace) -> dict[str, Any]:
    config_file, *overrides = options.words
    config = settings.load(Path(config_file), overrides)
    torch.manual_seed(SEED)
    started = time.perf_counter()

    def load() -> tuple[ContenderGraph, Contender]:
        graph = ContenderGraph(Path(config.data.partition))
        return graph, CONTENDERS[options.name](graph, config)

    graph, contender = within_memory("loading", load)
    loaded = time.perf_counter() - started
    course = Course(graph, contender, options.sampled)
    try:
        for number in range(1, options.evaluations + 1):
            course.train(options.seconds * number / options.evaluations)
            if number == options.evaluations or not course.costly:
                # A library may end the process where it finds no memory: then this is what is known.
                print(json.dumps({"load_seconds": loaded, **course.facts()}), flush=True)
                course.evaluate()
    except ShortageError as error:
        print(json.dumps({"load_seconds": loaded, **course.facts()}))
        sys.exit(str(error))
    return {"load_seconds": loaded, **course.facts()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=CONTENDERS)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--evaluations", type=int, default=4, help="so many, evenly over the seconds")
    parser.add_argument("--sampled", action="store_true", help="evaluate by sampled neighbors, where that is offered")
    parser.add_argument("words", nargs="+", metavar="ARGUMENT", help="a configuration of nfdist, and overrides")
    try:
        print(json.dumps(run(parser.parse_args())))
    except (ShortageError, NfdistError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
