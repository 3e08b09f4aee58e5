"""accuracy: nodes predicted right / labeled nodes of the class, pooled; for multi-label tasks entries of a question."""

import torch
from torch import Tensor

from nfdist.evaluation.metrics.metric import Metric, register
from nfdist.model.task import Task


def count_right(task: Task, logits: Tensor, labels: Tensor) -> Tensor:
    """Right predictions and labels [2, classes]."""
    if task.kind == "multi":
        asked = labels >= 0
        return torch.stack([(((logits > 0) == (labels == 1)) & asked).sum(0), asked.sum(0)])
    labels = labels.long()
    right = labels[logits.max(1).indices == labels]  # as argmax, in less time
    return torch.stack([torch.bincount(classes, minlength=task.num_classes) for classes in (right, labels)])


register(Metric("accuracy", larger_is_better=True, averaged=False, count=count_right, default_for=("single",)))
