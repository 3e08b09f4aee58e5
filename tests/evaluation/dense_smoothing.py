"""Correct and smooth as matrices of the whole graph, and rows of all nodes to smooth."""

import torch
import torch.nn.functional as F
from torch import Tensor

from nfdist import seeds
from nfdist.evaluation.smoothing import LEAST, MOST_FACTOR, Rows, Strengths
from nfdist.model.task import Task
from nfdist.store.store import Store
from tests.model.reference import adjacency_matrix, weighted

TASKS = (Task("single", 4), Task("binary", 2), Task("multi", 3))


def normalized_edges(store: Store) -> Tensor:
    """Â of the whole graph, [nodes, nodes]."""
    return weighted(adjacency_matrix(store.induced(torch.arange(store.num_nodes)), torch.float64), True)


def known_rows(task: Task, num_nodes: int) -> tuple[Rows, Tensor]:
    """Logits, labels of which some are missing, and splits of all nodes."""
    generator = seeds.generator(task.num_classes, "smoothing")
    shape = (num_nodes, task.num_classes) if task.kind == "multi" else (num_nodes,)
    labels = torch.randint(-1, 2 if task.kind == "multi" else task.num_classes, shape, generator=generator)
    logits = torch.randn(num_nodes, task.num_classes, generator=generator, dtype=torch.float64)
    split = torch.randint(4, (num_nodes,), generator=generator, dtype=torch.int8)
    return Rows(task, logits, labels.to(torch.int8) if task.kind == "multi" else labels, split == 1), split


def dense_smooth(edges: Tensor, known: Rows, strengths: Strengths) -> Tensor:
    """Smoothed logits of all nodes."""
    multi, logits = known.task.kind == "multi", known.logits
    probabilities = logits.sigmoid() if multi else logits.exp() / logits.exp().sum(1, keepdim=True)
    labels = known.labels if multi else F.one_hot(known.labels.clamp(min=0), known.task.num_classes)
    looked_at = (known.labels if multi else known.labels[:, None]) >= 0
    looked_at = looked_at & known.training[:, None]
    answers = probabilities
    if strengths.correction is not None:
        errors = (labels - probabilities) * looked_at
        nodes = looked_at.any(1)
        arrived = iterated(edges, errors, strengths.correction, strengths.steps)
        lengths = arrived.abs().sum(1, keepdim=True)
        mean = errors[nodes].abs().sum(1).mean()
        factors = torch.where(lengths > mean / MOST_FACTOR, mean / lengths, MOST_FACTOR)
        if isinstance(strengths.scale, float):
            factors = torch.full_like(lengths, strengths.scale)
        answers = probabilities + arrived * factors
    if strengths.smoothing is not None:
        start = torch.where(looked_at, labels.double(), answers)
        answers = iterated(edges, start, strengths.smoothing, strengths.steps)
        ones = iterated(edges, torch.ones_like(start[:, :1]), strengths.smoothing, strengths.steps)
        answers = answers / ones if multi else answers
    log = answers.clamp(min=LEAST).log()
    shifts = torch.tensor(strengths.shifts or [0.0] * (known.task.num_classes if multi else 1), dtype=log.dtype)
    if multi:
        return log - (1 - answers).clamp(min=LEAST).log() + shifts
    log = log - log.mean(1, keepdim=True) if known.task.kind == "binary" else log
    if len(log[0]) == 2:  # half of it to either class
        log = log + torch.stack([-shifts[0], shifts[0]]) / 2
    return log


def iterated(edges: Tensor, start: Tensor, strength: float, steps: int) -> Tensor:
    rows = start
    for _ in range(steps):
        rows = strength * edges @ rows + (1 - strength) * start
    return rows
