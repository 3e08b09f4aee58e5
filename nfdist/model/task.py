"""Tasks: how many outputs a model has, and what its predictions cost.

single   one class a node; cross-entropy
binary   yes or no a node; two outputs, one-hot binary cross-entropy
multi    several yes-or-no questions a node; binary cross-entropy
"""

from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from nfdist.errors import ConfigError

KINDS = ("single", "binary", "multi")


@dataclass(frozen=True)
class Loss:
    """A sum of losses and how many were added, so that the sums of several batches or ranks can be averaged."""

    total: Tensor
    count: float

    @property
    def mean(self) -> Tensor:
        """The average loss; 0 where there was nothing to add."""
        return self.total / (self.count or 1)


@dataclass(frozen=True)
class Task:
    """A kind of task with its number of classes (single), 2 (binary) or the number of questions (multi).

    In training nodes may count by the weight of their class [classes], and labels may be taken as a little uncertain.
    """

    kind: str
    num_classes: int
    class_weights: Tensor | None = field(default=None, compare=False)
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"task must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.num_classes < 1 or (self.kind == "binary" and self.num_classes != 2):
            raise ConfigError(
                f"a {self.kind} task cannot have {self.num_classes} classes: partition the graph again, with labels"
            )

    def loss(self, logits: Tensor, labels: Tensor) -> Loss:
        """The supervised loss of logits [n, outputs] and labels [n] or, for multi, [n, questions].

        A label of -1 is missing: its node, or for multi its entry, is neither added nor counted.
        """
        self.check(logits, labels)
        labeled = labels >= 0
        if not labeled.all():
            logits, labels = logits[labeled], labels[labeled]
        return Loss(self.total(logits, labels), self.count(labels))

    def total(self, logits: Tensor, labels: Tensor, known: Tensor | None = None) -> Tensor:
        """The sum of the losses of labels that were checked, of which none is missing.

        Of several questions some answers may be: then `known` are the places of the others, as a row.
        """
        if known is not None:
            logits, labels = (rows.flatten().index_select(0, known) for rows in (logits, labels))
        smoothing = self.label_smoothing
        weights = None if self.class_weights is None else self.class_weights.to(logits)
        if self.kind == "single":
            return F.cross_entropy(logits, labels.long(), weights, reduction="sum", label_smoothing=smoothing)
        targets = (labels if self.kind == "multi" else F.one_hot(labels.long(), 2)).to(logits.dtype)
        targets = targets * (1 - smoothing) + smoothing / 2 if smoothing else targets
        weights = None if weights is None else weights[labels.long(), None]
        return F.binary_cross_entropy_with_logits(logits, targets, weights, reduction="sum")

    def to(self, device: torch.device) -> "Task":
        """The same with its weights on a device, for losses there."""
        return self if self.class_weights is None else replace(self, class_weights=self.class_weights.to(device))

    def count(self, labels: Tensor) -> float:
        """How many terms the loss of these labels has, or what their weights come to."""
        labeled = labels[labels >= 0]
        terms = len(labeled) if self.class_weights is None else float(self.class_weights[labeled.long().cpu()].sum())
        return terms * (2 if self.kind == "binary" else 1)

    def check(self, logits: Tensor, labels: Tensor) -> None:
        """Refuse logits and labels of another shape than the task's, and labels that do not exist."""
        wanted = (len(logits), self.num_classes) if self.kind == "multi" else (len(logits),)
        if logits.ndim != 2 or logits.shape[1] != self.num_classes or labels.shape != wanted:
            raise ConfigError(
                f"a {self.kind} task of {self.num_classes} needs logits [n, {self.num_classes}] and labels "
                f"{list(wanted)}, got {list(logits.shape)} and {list(labels.shape)}"
            )
        self.check_labels(labels)

    def check_labels(self, labels: Tensor) -> None:
        """Refuse labels that do not exist."""
        limit = 2 if self.kind == "multi" else self.num_classes
        wrong = labels[~(((labels >= 0) | (labels == -1)) & (labels < limit))]
        if len(wrong):
            raise ConfigError(
                f"label {wrong[0].item()} is outside the {limit} classes 0 to {limit - 1}, and -1 for none"
            )
