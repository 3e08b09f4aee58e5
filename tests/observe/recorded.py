"""Metrics of a rank to which everything has happened."""

from pathlib import Path

from prometheus_client import CollectorRegistry

from nfdist.observe.metrics import RunMetrics, StepFacts

FIRST_STEP = StepFacts(
    epoch=0,
    step=1,
    seconds=2.0,
    wait_seconds=0.25,
    communication_seconds=0.5,
    straggler_gap_seconds=0.125,
    straggler_lag_seconds=0.0625,
    sent_bytes=65_000,
    nodes=100,
    edges=300,
    loss=1.5,
    supervised_loss=1.25,
    edge_loss=2.5,
    gradient_norm=0.75,
    learning_rate=0.01,
)
SCORES = {"train": 0.9, "valid": 0.8, "test": 0.7}


def full_registry(disk: Path) -> CollectorRegistry:
    """Every metric there is has a value."""
    registry = CollectorRegistry()
    metrics = RunMetrics(registry, "cora", rank=0, restarts=1, device_bytes=lambda: 5.0, disk=disk)
    metrics.seed.set(0)
    metrics.record_step(FIRST_STEP)
    metrics.record_evaluation(1.0, "accuracy", SCORES, SCORES)
    metrics.record_smoothed("accuracy", SCORES)
    metrics.record_checkpoint()
    metrics.record_refused_step()
    return registry
