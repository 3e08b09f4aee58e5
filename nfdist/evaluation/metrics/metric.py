"""Metric: a score as one fraction a class, whose two sides are sums over nodes that lie on many ranks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nfdist.model.task import Task
from nfdist.world import World


@dataclass(frozen=True)
class Metric:
    """How nodes are scored: `averaged` over classes that have a value (macro), or pooled over all of them (micro).

    `count(task, logits, labels)` gives the numerators and denominators [2, classes] of some labeled rows, which are
    summed over all. What cannot be counted row by row has `count_together(world, task, logits, labels, members)`, which
    every rank calls, with tensors on the CPU: its own part of the sums [splits, 2, classes], where `members` are the
    labeled rows of each split.
    """

    name: str
    larger_is_better: bool
    averaged: bool
    count: Callable[[Task, Tensor, Tensor], Tensor] | None = None
    count_together: Callable[[World, Task, Tensor, Tensor, Sequence[Tensor]], Tensor] | None = None
    dtype: torch.dtype = torch.int64  # of the fractions: nothing is lost when ranks add integers
    undefined: float | None = None  # the score of labeled nodes whose denominators are all 0
    default_for: tuple[str, ...] = ()  # the kinds of tasks for which "auto" stands for it
    refusal: Callable[[Task], str | None] = lambda task: None  # what a task lacks to be scored by it
    by_order: bool = False  # of the answers of yes, wherever yes begins


METRICS: dict[str, Metric] = {}


def register(metric: Metric) -> None:
    """Let `evaluate.metric` name it."""
    METRICS[metric.name] = metric
