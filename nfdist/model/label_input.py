"""Labels as inputs: what the labels that a model is given add to the input embedding of their nodes."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfdist.devices import is_gpu
from nfdist.errors import ConfigError


class LabelInput(nn.Module):
    """A learned table [classes, c], still to be drawn; a node whose label is not given gets nothing of it."""

    def __init__(self, num_outputs: int, channels: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(num_outputs, channels))

    def forward(self, labels: Tensor) -> Tensor:
        """Rows [n, c] of the table for labels [n], or its product with answers [n, questions] / sqrt(questions).

        A yes counts 1 and a no -1; -1 is for none.
        """
        if labels.ndim == 1:
            return F.embedding(labels.long() + 1, F.pad(self.table, (0, 0, 1, 0)))  # the row of -1 is of zeros
        answers = (2 * labels - 1).where(labels >= 0, 0).to(self.table.dtype) * len(self.table) ** -0.5
        rows: Tensor = answers @ self.table
        return rows.to(self.table.dtype)

    def check(self, labels: Tensor, num_rows: int) -> None:
        """Refuse labels that are not one, or one answer to each question, for every row, or that do not exist.

        Which exist is looked at on the CPU alone: labels of a batch were among those that the task has checked.
        """
        classes = len(self.table)
        if labels.shape not in ((num_rows,), (num_rows, classes)):
            raise ConfigError(
                f"labels given as inputs must be [{num_rows}] or [{num_rows}, {classes}], got {list(labels.shape)}"
            )
        limit = classes if labels.ndim == 1 else 2
        if is_gpu(labels.device):
            return
        wrong = labels[(labels < -1) | (labels >= limit)]
        if len(wrong):
            raise ConfigError(
                f"label {wrong[0].item()}, given as an input, is outside 0 to {limit - 1}, and -1 for none"
            )


def label_terms(label_input: LabelInput | None, labels: Tensor | None, num_rows: int) -> list[Tensor]:
    """What labels add to the input embedding [n, c] of rows, as a list of no tensor where the model takes none.

    One that does must always be told which are given, if only that none is: to forget them would go unnoticed.
    """
    if label_input is None:
        if labels is not None:
            raise ConfigError("labels are given to a model that takes none: train it with train.label_inputs above 0")
        return []
    if labels is None:
        raise ConfigError("the model takes labels as inputs: give some, and -1 for a node without one")
    label_input.check(labels, num_rows)
    rows: Tensor = label_input(labels)
    return [rows]
