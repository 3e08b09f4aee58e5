"""What trackers show, read back."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

from nfdist.observe.trackers.tracker import Line

Scalars = dict[str, list[tuple[int, float]]]  # steps and values by name


def scalars_of(lines: Sequence[Mapping[str, Any]]) -> Mapping[str, object]:
    """What lines of metrics.jsonl come to; event files hold numbers of 32 bits."""
    found: Scalars = {}
    for line in map(Line.of, lines):
        for name, value in line.values.items():
            found.setdefault(name, []).append((line.step, value))
    return {name: [(step, pytest.approx(value, rel=1e-6)) for step, value in series] for name, series in found.items()}


def event_scalars(run: Path, seed: int) -> Scalars:
    """All that TensorBoard would show of a seed."""
    events = EventAccumulator(str(run / "tensorboard" / f"seed-{seed}"), size_guidance={SCALARS: 0}).Reload()
    return {tag: [(one.step, one.value) for one in events.Scalars(tag)] for tag in events.Tags()[SCALARS]}
