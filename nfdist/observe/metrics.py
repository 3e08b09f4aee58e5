"""What one rank tells Prometheus about its run. No label is ever a node: series do not grow with the graph."""

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

Instrument = TypeVar("Instrument", Counter, Gauge, Histogram)

# From a millisecond to minutes: a small step and the evaluation of a large graph fit one scale.
_BUCKETS = tuple(digit * 10.0**power for power in range(-3, 3) for digit in (1, 2.5, 5))


@dataclass(frozen=True)
class StepFacts:
    """One training step of one rank; its nodes, edges, bytes and times are the rank's own, the losses everyone's.

    `straggler_gap_seconds` is how long the fastest rank waited for the slowest.
    """

    epoch: int
    step: int
    seconds: float
    wait_seconds: float
    communication_seconds: float
    straggler_gap_seconds: float
    sent_bytes: int
    nodes: int
    edges: int
    loss: float
    supervised_loss: float
    edge_loss: float
    learning_rate: float


class RunMetrics:
    """The instruments of one rank, in the caller's registry; a gauge that has no value yet is NaN.

    `device_bytes` tells the memory in use on an accelerator, where there is one.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        rank: int = 0,
        restarts: int = 0,
        device_bytes: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        def make(kind: type[Instrument], name: str, text: str, **options: Any) -> Instrument:
            return kind(f"nfdist_{name}", text, ["rank"], registry=registry, **options).labels(str(rank))

        def gauge(name: str, text: str) -> Gauge:
            made = make(Gauge, name, text)
            made.set(math.nan)
            return made

        self._rank, self._clock, self._checkpoint_at = str(rank), clock, math.nan

        self.step_seconds = make(Histogram, "step_seconds", "Time of a training step", buckets=_BUCKETS)
        self.batch_wait_seconds = make(
            Histogram, "batch_wait_seconds", "Time a step waited for its batch", buckets=_BUCKETS
        )
        self.evaluation_seconds = make(Histogram, "evaluation_seconds", "Time of an evaluation", buckets=_BUCKETS)
        self.communication_seconds = make(Counter, "communication_seconds_total", "Time spent in collectives")
        self.sent_bytes = make(Counter, "sent_bytes_total", "Bytes sent to other ranks")

        self.nodes = make(Counter, "nodes_total", "Nodes trained on")
        self.edges = make(Counter, "edges_total", "Edges trained on")
        self.nodes_per_second = gauge("nodes_per_second", "Nodes a second in the last step")
        self.edges_per_second = gauge("edges_per_second", "Edges a second in the last step")

        self.epoch = gauge("epoch", "Epoch of the last step")
        self.step = gauge("step", "Number of the last step")
        self.loss = gauge("loss", "Total loss of the last step, over all ranks")
        self.supervised_loss = gauge("supervised_loss", "Supervised loss of the last step, over all ranks")
        self.edge_loss = gauge("edge_loss", "Edge loss of the last step, over all ranks, before its weight")
        self.learning_rate = gauge("learning_rate", "Learning rate of the last step")
        self.straggler_gap_seconds = gauge(
            "straggler_gap_seconds", "How long the fastest rank waited for the slowest in the last step"
        )
        self.score = Gauge("nfdist_score", "Score of the last evaluation", ["rank", "split"], registry=registry)

        self.restarts = make(Gauge, "restarts", "How often the run was started again")
        self.restarts.set(restarts)
        gauge("checkpoint_age_seconds", "Time since this process last wrote a checkpoint").set_function(
            lambda: clock() - self._checkpoint_at
        )
        gauge("memory_bytes", "Resident memory of the process").set_function(_resident_bytes)
        if device_bytes is not None:
            gauge("device_memory_bytes", "Memory in use on the accelerator").set_function(device_bytes)

    def record_step(self, facts: StepFacts) -> None:
        """Count a step that has ended."""
        self.step_seconds.observe(facts.seconds)
        self.batch_wait_seconds.observe(facts.wait_seconds)
        self.communication_seconds.inc(facts.communication_seconds)
        self.sent_bytes.inc(facts.sent_bytes)
        self.nodes.inc(facts.nodes)
        self.edges.inc(facts.edges)
        seconds = max(facts.seconds, 1e-9)  # a clock may be coarser than an empty step
        self.nodes_per_second.set(facts.nodes / seconds)
        self.edges_per_second.set(facts.edges / seconds)
        self.epoch.set(facts.epoch)
        self.step.set(facts.step)
        self.loss.set(facts.loss)
        self.supervised_loss.set(facts.supervised_loss)
        self.edge_loss.set(facts.edge_loss)
        self.learning_rate.set(facts.learning_rate)
        self.straggler_gap_seconds.set(facts.straggler_gap_seconds)

    def record_evaluation(self, seconds: float, scores: Mapping[str, float | None]) -> None:
        """Count an evaluation; scores are by split, None where a split has nothing to score."""
        self.evaluation_seconds.observe(seconds)
        for split, score in scores.items():
            self.score.labels(self._rank, split).set(math.nan if score is None else score)

    def record_checkpoint(self) -> None:
        """Start the age of the last checkpoint anew."""
        self._checkpoint_at = self._clock()


def _resident_bytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
