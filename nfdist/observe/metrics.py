"""What one rank tells Prometheus about its run. No label is ever a node: series do not grow with the graph."""

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

# From a millisecond to minutes: a small step and the evaluation of a large graph fit one scale.
_BUCKETS = tuple(digit * 10.0**power for power in range(-3, 3) for digit in (1, 2.5, 5))


@dataclass(frozen=True)
class StepFacts:
    """One training step of one rank; its nodes, edges, bytes and times are the rank's own, the losses everyone's.

    `straggler_gap_seconds` is how long the fastest rank waited for the slowest, `straggler_lag_seconds` how much longer
    than the fastest this rank worked.
    """

    epoch: int
    step: int
    seconds: float
    wait_seconds: float
    communication_seconds: float
    straggler_gap_seconds: float
    straggler_lag_seconds: float
    sent_bytes: int
    nodes: int
    edges: int
    loss: float
    supervised_loss: float
    edge_loss: float
    gradient_norm: float
    learning_rate: float


class RunMetrics:
    """The instruments of one rank, in the caller's registry. What has no value yet is not exported.

    All have the labels `run`, a name, and `rank`. `device_bytes` tells the memory in use on an accelerator, where there
    is one; `disk` is a folder on the disk of the run directory, for the rank that writes there.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        run: str = "",
        rank: int = 0,
        restarts: int = 0,
        device_bytes: Callable[[], float] | None = None,
        disk: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._own = {"run": run, "rank": str(rank)}
        self._registry, self._clock = registry, clock
        self._checkpoint_at: float | None = None

        self.step_seconds = self._histogram("step_seconds", "Time of a training step")
        self.batch_wait_seconds = self._histogram("batch_wait_seconds", "Time a step waited for its batch")
        self.evaluation_seconds = self._histogram("evaluation_seconds", "Time of an evaluation")
        self.communication_seconds = self._counter("communication_seconds_total", "Time spent in collectives")
        self.sent_bytes = self._counter("sent_bytes_total", "Bytes sent to other ranks")
        self.nodes = self._counter("nodes_total", "Nodes trained on")
        self.edges = self._counter("edges_total", "Edges trained on")
        self.refused_steps = self._counter("refused_steps_total", "Steps refused for a loss or gradient of no number")

        self.nodes_per_second = self._gauge("nodes_per_second", "Nodes a second in the last step")
        self.edges_per_second = self._gauge("edges_per_second", "Edges a second in the last step")
        self.seed = self._gauge("seed", "Seed that is trained")
        self.epoch = self._gauge("epoch", "Epoch of the last step")
        self.step = self._gauge("step", "Number of the last step")
        self.step_at = self._gauge("step_timestamp_seconds", "When the last step ended")
        self.loss = self._gauge("loss", "Total loss of the last step, over all ranks")
        self.supervised_loss = self._gauge("supervised_loss", "Supervised loss of the last step, over all ranks")
        self.edge_loss = self._gauge("edge_loss", "Edge loss of the last step, over all ranks, before its weight")
        self.gradient_norm = self._gauge("gradient_norm", "Length of the gradient of the last step, before clipping")
        self.learning_rate = self._gauge("learning_rate", "Learning rate of the last step")
        self.straggler_gap_seconds = self._gauge(
            "straggler_gap_seconds", "How long the fastest rank waited for the slowest in the last step"
        )
        self.straggler_lag_seconds = self._gauge(
            "straggler_lag_seconds", "How much longer than the fastest rank this one worked in the last step"
        )

        self.score = self._gauge("score", "Score of the last evaluation, not smoothed", "split", "metric")
        self.smoothed_score = self._gauge(
            "smoothed_score", "Score of the best checkpoint of the last seed that ended, smoothed", "split", "metric"
        )
        self.evaluation_loss = self._gauge("evaluation_loss", "Loss of the last evaluation", "split")
        self.evaluation_at = self._gauge("evaluation_timestamp_seconds", "When the last evaluation ended")

        self._gauge("restarts", "How often torchrun has started the workers again").set(restarts)
        self._gauge("start_timestamp_seconds", "When this process began to train").set(clock())
        self._measured("checkpoint_timestamp_seconds", "When the last checkpoint was written", self._checkpoint_time)
        self._measured("checkpoint_age_seconds", "Time since the last checkpoint was written", self._checkpoint_age)
        self._measured("memory_bytes", "Resident memory of the process", _resident_bytes)
        if device_bytes is not None:
            self._measured("device_memory_bytes", "Memory in use on the accelerator", device_bytes)
        if disk is not None:
            free, size = (lambda: disk_usage(disk).free), (lambda: disk_usage(disk).total)
            self._measured("disk_free_bytes", "Free space on the disk of the run directory", free)
            self._measured("disk_size_bytes", "Size of the disk of the run directory", size)

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
        for name in ("epoch", "step", "loss", "supervised_loss", "edge_loss", "gradient_norm", "learning_rate"):
            getattr(self, name).set(getattr(facts, name))
        self.straggler_gap_seconds.set(facts.straggler_gap_seconds)
        self.straggler_lag_seconds.set(facts.straggler_lag_seconds)
        self.step_at.set(self._clock())

    def record_refused_step(self) -> None:
        """Count a step whose loss or gradient was no number, after which a training ends."""
        self.refused_steps.inc()

    def record_evaluation(
        self,
        seconds: float,
        metric: str,
        scores: Mapping[str, float | None],
        losses: Mapping[str, float | None],
    ) -> None:
        """Count an evaluation; scores and losses are by split, None where a split has nothing to score."""
        self.evaluation_seconds.observe(seconds)
        self._record_splits(self.score, scores, metric)
        self._record_splits(self.evaluation_loss, losses)
        self.evaluation_at.set(self._clock())

    def record_smoothed(self, metric: str, scores: Mapping[str, float | None]) -> None:
        """Show what the best checkpoint of a seed comes to with smoothed answers."""
        self._record_splits(self.smoothed_score, scores, metric)

    def record_checkpoint(self) -> None:
        """Start the age of the last checkpoint anew."""
        self._checkpoint_at = self._clock()

    def _record_splits(self, gauge: "_Gauge", values: Mapping[str, float | None], *labels: str) -> None:
        for split, value in values.items():
            gauge.set(math.nan if value is None else value, split, *labels)

    def _gauge(self, name: str, text: str, *labels: str) -> "_Gauge":
        made = Gauge(f"nfdist_{name}", text, [*self._own, *labels], registry=self._registry)
        return _Gauge(made, tuple(self._own.values()))

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"nfdist_{name}", text, [*self._own], registry=self._registry).labels(**self._own)

    def _histogram(self, name: str, text: str) -> Histogram:
        made = Histogram(f"nfdist_{name}", text, [*self._own], registry=self._registry, buckets=_BUCKETS)
        return made.labels(**self._own)

    def _measured(self, name: str, text: str, measure: Callable[[], float | None]) -> None:
        self._registry.register(_Measured(f"nfdist_{name}", text, self._own, measure))

    def _checkpoint_time(self) -> float | None:
        return self._checkpoint_at

    def _checkpoint_age(self) -> float | None:
        return None if self._checkpoint_at is None else self._clock() - self._checkpoint_at


@dataclass(frozen=True)
class _Gauge:
    """A gauge with the labels of this rank and maybe more, exported while it has a number."""

    gauge: Gauge
    own: tuple[str, ...]

    def set(self, value: float, *labels: str) -> None:
        if math.isnan(value):
            with suppress(KeyError):  # it had none before, either
                self.gauge.remove(*self.own, *labels)
        else:
            self.gauge.labels(*self.own, *labels).set(value)


@dataclass(frozen=True, eq=False)  # the registry wants a hash
class _Measured(Collector):
    """A gauge that is measured at every scrape, and not exported where that gives nothing."""

    name: str
    text: str
    labels: Mapping[str, str]
    measure: Callable[[], float | None]

    def describe(self) -> Iterable[Any]:
        return [GaugeMetricFamily(self.name, self.text, labels=[*self.labels])]

    def collect(self) -> Iterable[Any]:
        family = GaugeMetricFamily(self.name, self.text, labels=[*self.labels])
        try:
            value = self.measure()
        except OSError:  # as of a disk that is gone: the other metrics are still worth a scrape
            value = None
        if value is not None:
            family.add_metric([*self.labels.values()], value)
        return [family]


def _resident_bytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
