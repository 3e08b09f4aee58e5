"""Scores of nodes that lie on many ranks, equal to those of one process that holds them all.

Every metric is a fraction of two integers a class, so nothing is lost when ranks add theirs up:

accuracy    nodes predicted right / labeled nodes of the class; the score pools all classes
f1_micro    2 true positives / (predicted + labeled) nodes of the class; the score pools all classes
f1_macro    the same, averaged over the classes that occur among the labels or the predictions
roc_auc     pairs of a yes and a no in the right order, ties half / all pairs, averaged over the questions with both

For multi-label tasks a class is a question, accuracy counts its entries, and F1 those that are or should be yes.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nfdist.attention.chunks import chunks
from nfdist.collectives import exchange, fail_together, total
from nfdist.errors import ConfigError
from nfdist.model.task import Task
from nfdist.store.graph import SPLIT_NAMES, TEST, TRAIN, VALID
from nfdist.world import World

METRICS = ("accuracy", "f1_macro", "f1_micro", "roc_auc")
_AVERAGED = ("f1_macro", "roc_auc")


@dataclass(frozen=True)
class SplitScore:
    """The metric and mean loss of a split, None where nothing can be measured, and the metric of each class.

    ROC-AUC has one entry a question; a task of two classes is one question.
    """

    value: float | None
    loss: float | None
    labeled_nodes: int
    per_class: tuple[float | None, ...]


@dataclass(frozen=True)
class Scores:
    """The scores of the three splits, the same on every rank."""

    metric: str
    train: SplitScore
    valid: SplitScore
    test: SplitScore

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return asdict(self)


def resolve_metric(metric: str, task: Task) -> str:
    """The metric that "auto" stands for; any other is itself, unless the task cannot be measured by it."""
    if metric == "auto":
        return "accuracy" if task.kind == "single" else "roc_auc"
    if metric not in METRICS:
        raise ConfigError(f"evaluate.metric must be one of auto, {', '.join(METRICS)}, got {metric!r}")
    if metric == "roc_auc" and task.kind == "single" and task.num_classes != 2:
        raise ConfigError(
            f"evaluate.metric roc_auc needs yes-or-no labels, got {task.num_classes} classes: "
            "choose accuracy, f1_macro or f1_micro"
        )
    return metric


def score(world: World, task: Task, metric: str, logits: Tensor, labels: Tensor, split: Tensor) -> Scores:
    """Score the nodes of all ranks; each gives its own [n, outputs], [n] or [n, questions], and [n].

    Every rank must call this with the same task and metric.
    """
    metric = resolve_metric(metric, task)
    _check_together(world, task, logits, labels, split)
    logits = logits.detach().to("cpu", torch.promote_types(logits.dtype, torch.float32))
    labels, split = labels.cpu(), split.cpu()
    labeled = labels >= 0 if labels.ndim == 1 else (labels >= 0).any(1)
    members = [torch.nonzero(labeled & (split == code)).flatten() for code in (TRAIN, VALID, TEST)]

    tallies = [_Tally.of(task, metric, logits, labels, rows) for rows in members]
    losses = total(world, torch.tensor([tally.loss for tally in tallies], dtype=torch.float64), "score")
    _refuse_divergence(world, losses)
    sizes = total(world, torch.tensor([[tally.nodes, tally.losses] for tally in tallies]), "score")
    fractions = torch.stack([tally.fractions for tally in tallies])
    if metric == "roc_auc":
        if task.kind != "multi":
            logits, labels = logits.softmax(1)[:, 1:], labels[:, None]
        fractions = _pair_fractions(world, logits, labels, members)
    fractions = total(world, fractions, "score")
    train, valid, test = (
        _split_score(metric, *parts) for parts in zip(losses.tolist(), sizes.tolist(), fractions.tolist(), strict=True)
    )
    return Scores(metric, train, valid, test)


def _check_together(world: World, task: Task, logits: Tensor, labels: Tensor, split: Tensor) -> None:
    error = None
    try:
        task.check(logits, labels)
        if split.shape != (len(logits),):
            raise ConfigError(f"{len(logits)} rows of logits need a split of each, got splits {list(split.shape)}")
    except ConfigError as mistake:
        error = mistake
    fail_together(world, error, ConfigError)


def _refuse_divergence(world: World, losses: Tensor) -> None:
    """A logit of nan would be predicted and ranked by accident; it always shows in the loss. Every rank must call."""
    error = None
    for code, loss in zip((TRAIN, VALID, TEST), losses.tolist(), strict=True):
        if not math.isfinite(loss):
            error = error or ConfigError(
                f"the loss of the {SPLIT_NAMES[code]} nodes is {loss}, the model has diverged: lower "
                "train.learning_rate and go on from an earlier checkpoint"
            )
    fail_together(world, error, ConfigError)


@dataclass(frozen=True)
class _Tally:
    """What one rank adds to a split: its loss and how many it sums, its labeled nodes, and fractions [2, classes]."""

    loss: float
    losses: int
    nodes: int
    fractions: Tensor

    @staticmethod
    def of(task: Task, metric: str, logits: Tensor, labels: Tensor, rows: Tensor) -> "_Tally":
        """Tally the rows of a split, all of them labeled."""
        loss, losses, fractions = 0.0, 0, torch.zeros(2, task.num_classes, dtype=torch.int64)
        for piece in chunks(len(rows), task.num_classes, logits.device):
            some, truth = logits.index_select(0, rows[piece]), labels.index_select(0, rows[piece])
            part = task.loss(some, truth)
            loss += float(part.total)
            losses += part.count
            if metric != "roc_auc":
                fractions += _class_fractions(task, metric, some, truth)
        return _Tally(loss, losses, len(rows), fractions)


def _class_fractions(task: Task, metric: str, logits: Tensor, labels: Tensor) -> Tensor:
    """Numerators and denominators [2, classes] of accuracy or F1 over labeled nodes, before they are pooled."""
    if task.kind == "multi":
        asked, yes = labels >= 0, labels == 1
        guesses = (logits > 0) & asked
        if metric == "accuracy":
            return torch.stack([((guesses == yes) & asked).sum(0), asked.sum(0)])
        hits, predicted, actual = (guesses & yes).sum(0), guesses.sum(0), yes.sum(0)
    else:
        labels, best = labels.long(), logits.max(1).indices  # as argmax, in less time
        hits, predicted, actual = (
            torch.bincount(classes, minlength=task.num_classes) for classes in (labels[best == labels], best, labels)
        )
        if metric == "accuracy":
            return torch.stack([hits, actual])
    return torch.stack([2 * hits, predicted + actual])


def _pair_fractions(world: World, scores: Tensor, labels: Tensor, members: Sequence[Tensor]) -> Tensor:
    """This rank's share of the ROC-AUC fractions [3, 2, questions]. Every rank must call this.

    A question of a split is worked out whole by one rank, to which the others send its column; a rank holds one
    column of all nodes at a time.
    """
    fractions = torch.zeros(len(members), 2, labels.shape[1], dtype=torch.int64)
    questions = list(product(range(len(members)), range(labels.shape[1])))
    for start in range(0, len(questions), world.size):
        asked = questions[start : start + world.size]
        outgoing = [_column(scores, labels, members[place], question) for place, question in asked]
        outgoing += [scores.new_empty(0, 2)] * (world.size - len(asked))
        arrived = torch.cat(exchange(world, outgoing, "score"))
        if world.rank < len(asked):
            place, question = asked[world.rank]
            fractions[place, :, question] = _ordered_pairs(arrived)
    return fractions


def _column(scores: Tensor, labels: Tensor, rows: Tensor, question: int) -> Tensor:
    """Scores beside labels [labeled, 2], in one tensor so that they travel together."""
    truth = labels[rows, question]
    return torch.stack([scores[rows, question], truth.to(scores.dtype)], 1)[truth >= 0]


def _ordered_pairs(column: Tensor) -> Tensor:
    """Twice the pairs whose yes outscores their no, ties half, and twice all pairs."""
    scores, labels = column.numpy().T
    yes, no = np.sort(scores[labels == 1]), np.sort(scores[labels == 0])  # numpy sorts many times faster than torch
    ordered = int(np.searchsorted(no, yes, "left").sum() + np.searchsorted(no, yes, "right").sum())
    return torch.tensor([ordered, 2 * len(yes) * len(no)])


def _split_score(metric: str, loss: float, sizes: Sequence[int], fractions: Sequence[Sequence[int]]) -> SplitScore:
    nodes, losses = sizes
    numerators, denominators = fractions
    per_class = tuple(part / whole if whole else None for part, whole in zip(numerators, denominators, strict=True))
    known = [value for value in per_class if value is not None]
    part, whole = (sum(known), len(known)) if metric in _AVERAGED else (sum(numerators), sum(denominators))
    undefined = 0.0 if nodes and metric != "roc_auc" else None  # F1 of a split without a yes, given or predicted
    return SplitScore(part / whole if whole else undefined, loss / losses if losses else None, nodes, per_class)
