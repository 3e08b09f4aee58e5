"""The moving average of the weights: what is evaluated and kept, while training goes on with the weights themselves."""

from copy import deepcopy

import torch

from nfdist.model.protocol import Model


class WeightAverage:
    """`model` is a copy of a model in training whose parameters are averages; its buffers are the same.

    Ranks have the same weights after every step, so each has the same average without a word to the others.
    """

    def __init__(self, trained: Model, decay: float) -> None:
        self.model, self._decay = deepcopy(trained).eval(), decay
        for average in self.model.parameters():
            average.requires_grad_(False)

    @torch.no_grad()
    def update(self, trained: Model, step: int) -> None:
        """Take in the weights that a step (from 0) has made."""
        kept = decay_of(self._decay, step)
        torch._foreach_lerp_(list(self.model.parameters()), list(trained.parameters()), 1 - kept)
        for same, buffer in zip(self.model.buffers(), trained.buffers(), strict=True):
            same.copy_(buffer)


def decay_of(decay: float, step: int) -> float:
    """How much of the average stays in a step (from 0): less in early ones, or the first weights would dominate it."""
    return min(decay, (1 + step) / (10 + step))
