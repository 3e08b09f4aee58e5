"""roc_auc: pairs of a yes and a no in the right order, ties half / all pairs, averaged over questions with both.

There is one entry a question; a task of two classes is one question.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor

from nfdist.collectives import exchange
from nfdist.evaluation.metrics.metric import Metric, register
from nfdist.model.task import Task
from nfdist.world import World


def count_pairs(world: World, task: Task, logits: Tensor, labels: Tensor, members: Sequence[Tensor]) -> Tensor:
    """The pairs that this rank counts [splits, 2, questions]. Every rank must call this.

    A question of a split is worked out whole by one rank, to which the others send its column; a rank holds one
    column of all nodes at a time.
    """
    if task.kind != "multi":
        logits, labels = logits.softmax(1)[:, 1:], labels[:, None]
    fractions = torch.zeros(len(members), 2, labels.shape[1], dtype=torch.int64)
    questions = list(product(range(len(members)), range(labels.shape[1])))
    for start in range(0, len(questions), world.size):
        asked = questions[start : start + world.size]
        outgoing = [_column(logits, labels, members[place], question) for place, question in asked]
        outgoing += [logits.new_empty(0, 2)] * (world.size - len(asked))
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


def refusal(task: Task) -> str | None:
    """Why a task of several classes has no ROC-AUC."""
    several = task.kind == "single" and task.num_classes != 2
    return f"needs yes-or-no labels, got {task.num_classes} classes" if several else None


register(
    Metric(
        "roc_auc",
        larger_is_better=True,
        averaged=True,
        count_together=count_pairs,
        default_for=("binary", "multi"),
        refusal=refusal,
        by_order=True,
    )
)
