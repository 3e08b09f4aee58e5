"""The task as training takes it: which classes count how much, and how certain labels are."""

from dataclasses import replace

import torch
from torch import Tensor

from nfdist.config import TrainConfig
from nfdist.errors import ConfigError
from nfdist.model.task import Task
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import GraphStore

NODES_AT_ONCE = 1 << 18


def training_task(
    task: Task, config: TrainConfig, store: GraphStore, split: Tensor, nodes_at_once: int = NODES_AT_ONCE
) -> Task:
    """The task with the weights and the smoothing of a configuration. Every rank must call this.

    Balanced weights are inverse to how often a class occurs among the training nodes, 1 on average over these.
    """
    smoothed = replace(task, label_smoothing=config.label_smoothing)
    if config.class_weights == "none":
        return smoothed
    if task.kind == "multi":
        raise ConfigError("train.class_weights = balanced needs one class a node, and this task has several questions")
    counts = torch.zeros(task.num_classes, dtype=torch.float64)
    for some in (split == TRAIN).nonzero()[:, 0].split(nodes_at_once):
        labels = store.labels(some)
        counts += torch.bincount(labels[labels >= 0].long(), minlength=task.num_classes)
    present = counts > 0
    weights = torch.where(present, counts.sum() / (present.sum() * counts.clamp(min=1)), 0.0)
    return replace(smoothed, class_weights=weights)
