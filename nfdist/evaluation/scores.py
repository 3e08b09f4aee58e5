"""Scores of nodes that lie on many ranks, equal to those of one process that holds them all.

Every metric (`metrics`, one file each) is a fraction a class; ranks add up its two sides, which are mostly integers, so
that nothing is lost. For multi-label tasks a class is a question.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nfdist.attention.ops.chunks import chunks
from nfdist.collectives import together, total
from nfdist.errors import ConfigError
from nfdist.evaluation.metrics.metric import METRICS, Metric
from nfdist.graph.split import has_label
from nfdist.model.task import Task
from nfdist.store.source_graph import SPLIT_NAMES, TEST, TRAIN, VALID
from nfdist.world import World

AS_GOOD_AS_NONE = 0.1  # of the labels outside the largest class. Chosen: a training that works passes it soon


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
    """The scores of the three splits, the same on every rank, and how many classes are predicted of any labeled node.

    For multi-label tasks that is None.
    """

    metric: str
    train: SplitScore
    valid: SplitScore
    test: SplitScore
    predicted_classes: int | None = None


def check_metric(metric: str) -> None:
    """Refuse a name that no metric has."""
    if metric not in ("auto", *METRICS):
        raise ConfigError(f"evaluate.metric must be one of auto, {', '.join(METRICS)}, got {metric!r}")


def resolve_metric(metric: str, task: Task, two_classes: str = "roc_auc") -> str:
    """The metric that "auto" stands for, `two_classes` if nodes have one label of two.

    Any other is itself, unless the task cannot be measured by it.
    """
    check_metric(metric)
    if metric == "auto":
        if task.kind == "single" and task.num_classes == 2:
            return two_classes
        return next(name for name, known in METRICS.items() if task.kind in known.default_for)
    if refusal := METRICS[metric].refusal(task):
        *others, last = (name for name, known in METRICS.items() if not known.refusal(task))
        raise ConfigError(f"evaluate.metric {metric} {refusal}: choose {', '.join(others)} or {last}")
    return metric


def undefined(scores: Scores) -> str:
    """What to say of splits whose labeled nodes have no score; empty where all have one."""
    names = [name for name in ("train", "valid", "test") if _is_undefined(getattr(scores, name))]
    return f"the {', '.join(names)} nodes have no {scores.metric}, since their labels are all alike" if names else ""


def _is_undefined(score: SplitScore) -> bool:
    return score.value is None and score.labeled_nodes > 0


def direction(metric: str) -> dict[str, bool]:
    """What a record of scores says beside them, to be ranked: nothing where larger is better."""
    return {} if METRICS[metric].larger_is_better else {"larger_is_better": False}


def score(world: World, task: Task, metric: str, logits: Tensor, labels: Tensor, split: Tensor) -> Scores:
    """Score the nodes of all ranks; each gives its own [n, outputs], [n] or [n, questions], and [n].

    That is done where the logits are. Every rank must call this with the same task and metric.
    """
    metric = resolve_metric(metric, task)
    together(world, lambda: _check(task, logits, labels, split), ConfigError)
    logits = logits.detach().to(torch.promote_types(logits.dtype, torch.float32))
    labels, split = labels.to(logits.device), split.to(logits.device)
    members = [torch.nonzero(has_label(labels) & (split == code)).flatten() for code in (TRAIN, VALID, TEST)]
    measure = METRICS[metric]
    tallies = [_tally(task, measure, logits, labels, rows) for rows in members]
    losses, fractions = (torch.stack(parts) for parts in zip(*tallies, strict=True))
    losses = total(world, losses, "score")
    together(world, lambda: _check_finite(losses[:, 0]), ConfigError)
    if measure.count_together is not None:
        rows = [some.cpu() for some in members]
        fractions = measure.count_together(world, task, logits.cpu(), labels.cpu(), rows)
    sums = zip(losses.tolist(), total(world, fractions, "score").tolist(), strict=True)
    train, valid, test = (_split_score(measure, *parts) for parts in sums)
    return Scores(metric, train, valid, test, _predicted_classes(world, task, logits, labels, torch.cat(members)))


def _predicted_classes(world: World, task: Task, logits: Tensor, labels: Tensor, rows: Tensor) -> int | None:
    """How many classes are predicted; 1 also where all others together are, next to their labels, as good as none."""
    if task.kind == "multi":
        return None
    predicted = torch.zeros(2, task.num_classes, dtype=torch.int64)  # and labeled
    for piece in chunks(len(rows), task.num_classes, logits.device):
        best = logits.index_select(0, rows[piece]).max(1).indices
        truth = labels.index_select(0, rows[piece]).long()
        predicted += torch.stack([torch.bincount(some, minlength=task.num_classes) for some in (best, truth)]).cpu()
    answers, truths = total(world, predicted, "score")
    others, wanted = int(answers.sum() - answers.max()), int(truths.sum() - truths.max())
    return 1 if others < AS_GOOD_AS_NONE * wanted else int((answers > 0).sum())


def _check(task: Task, logits: Tensor, labels: Tensor, split: Tensor) -> None:
    task.check(logits, labels)
    if split.shape != (len(logits),):
        raise ConfigError(f"{len(logits)} rows of logits need a split of each, got splits {list(split.shape)}")


def _check_finite(losses: Tensor) -> None:
    """A logit of nan would be predicted and ranked by accident; it always shows in the loss."""
    for code, loss in zip((TRAIN, VALID, TEST), losses.tolist(), strict=True):
        if not math.isfinite(loss):
            raise ConfigError(
                f"the loss of the {SPLIT_NAMES[code]} nodes is {loss}, the model has diverged: lower "
                "train.learning_rate and go on from an earlier checkpoint"
            )


def _tally(task: Task, metric: Metric, logits: Tensor, labels: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """What the labeled rows of a split add: a loss, of how many terms and nodes, [3], and fractions [2, classes]."""
    losses = torch.tensor([0, 0, len(rows)], dtype=torch.float64)
    fractions = torch.zeros(2, task.num_classes, dtype=metric.dtype)
    for piece in chunks(len(rows), task.num_classes, logits.device):
        some, truth = logits.index_select(0, rows[piece]), labels.index_select(0, rows[piece])
        loss = task.loss(some, truth)
        losses[:2] += torch.tensor([float(loss.total), loss.count], dtype=torch.float64)
        if metric.count is not None:
            fractions += metric.count(task, some, truth).cpu()
    return losses, fractions


def _split_score(metric: Metric, losses: Sequence[float], fractions: Sequence[Sequence[float]]) -> SplitScore:
    loss, terms, nodes = losses
    numerators, denominators = fractions
    per_class = tuple(part / whole if whole else None for part, whole in zip(numerators, denominators, strict=True))
    known = [value for value in per_class if value is not None]
    part, whole = (sum(known), len(known)) if metric.averaged else (sum(numerators), sum(denominators))
    value = part / whole if whole else metric.undefined if nodes else None
    return SplitScore(value, loss / terms if terms else None, int(nodes), per_class)
