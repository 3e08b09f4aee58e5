"""F1: 2 true positives / (predicted + labeled) nodes of the class; of a question, those of yes.

f1_micro pools all classes, f1_macro averages over those that occur among the labels or the predictions.
"""

import torch
from torch import Tensor

from nfdist.evaluation.metrics.metric import Metric, register
from nfdist.model.task import Task


def count_positives(task: Task, logits: Tensor, labels: Tensor) -> Tensor:
    """Twice the true positives, and the positives that are predicted or labeled [2, classes]."""
    if task.kind == "multi":
        yes, guesses = labels == 1, (logits > 0) & (labels >= 0)
        hits, predicted, actual = (guesses & yes).sum(0), guesses.sum(0), yes.sum(0)
    else:
        labels, best = labels.long(), logits.max(1).indices  # as argmax, in less time
        hits, predicted, actual = (
            torch.bincount(classes, minlength=task.num_classes) for classes in (labels[best == labels], best, labels)
        )
    return torch.stack([2 * hits, predicted + actual])


for name, averaged in (("f1_macro", True), ("f1_micro", False)):
    register(Metric(name, larger_is_better=True, averaged=averaged, count=count_positives, undefined=0.0))
