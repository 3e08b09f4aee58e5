"""What of a batch is worked out on the CPU before it goes to a device, where the host would wait for the answers."""

from dataclasses import replace

import torch
from torch import Tensor

from nfdist.devices import is_gpu
from nfdist.model.gaps import fill_gaps
from nfdist.model.protocol import Model, check_finite
from nfdist.model.task import Task
from nfdist.training.batches import Batch
from nfdist.training.label_inputs import give_labels


class Preparation:
    """Batches of one seed with labels as inputs and, for a device, checked and with what is drawn for them.

    On the CPU the model and the task look at a batch themselves, and draw in the step.
    """

    def __init__(self, model: Model, task: Task, seed: int, label_share: float, device: torch.device) -> None:
        self._model, self._task, self._seed = model, task, seed
        self._label_share, self._device = label_share, device
        means = model.feature_means
        self._means = None if means is None else means.cpu()
        self._checked: Tensor | None = None

    def __call__(self, batch: Batch) -> Batch:
        batch = give_labels(batch, self._label_share, self._seed)
        if not is_gpu(self._device):
            return batch
        if batch.features is not self._checked:  # those of a whole graph come again in every step
            check_finite(fill_gaps(batch.features, self._means))
            self._checked = batch.features
        self._task.check_labels(batch.labels)
        known = batch.labels.flatten() >= 0
        return replace(
            batch,
            known=None if bool(known.all()) else known.nonzero()[:, 0],
            directions=self._model.directions(self._seed, batch.number),
        )
