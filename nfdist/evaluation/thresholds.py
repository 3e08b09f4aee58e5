"""Where yes begins among smoothed answers, for a metric that looks at their order alone, such as ROC-AUC.

It takes answers that are all below one half as gladly as others, and then every label would be no. So the logit of
yes is shifted by one number a question, until as many validation nodes are answered yes as by the raw model: what that
thinks of rare classes, or was told by `train.class_weights`, holds for the smoothed answers, too. Their order stays.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nfdist.collectives import largest, least, total
from nfdist.model.task import Task
from nfdist.world import World

_HALVINGS = 64  # of the range of margins: what is left lies below rounding


def matching_shifts(world: World, task: Task, raw: Tensor, smoothed: Tensor) -> tuple[float, ...]:
    """What to add to a question's smoothed logits [n, outputs] for as many answers of yes as the raw ones have.

    Every rank must call this, with its own nodes.
    """
    margins = _margins(task, smoothed).double().cpu()
    wanted = total(world, (_margins(task, raw) > 0).sum(0).cpu(), "raw answers of yes")
    nothing = torch.full_like(margins[:1], torch.inf) if len(margins) else margins.new_full((1, len(wanted)), torch.inf)
    low = least(world, torch.cat([margins, nothing]).amin(0), "margins") - 1
    high = largest(world, torch.cat([margins, -nothing]).amax(0), "margins")
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        few = total(world, (margins > middle).sum(0), "answers of yes") <= wanted
        low, high = torch.where(few, low, middle), torch.where(few, middle, high)
    above = least(world, torch.cat([margins.where(margins > high, torch.inf), nothing]).amin(0), "margins")
    return tuple((-torch.where(above.isfinite(), (high + above) / 2, high)).tolist())


def shift(task: Task, logits: Tensor, shifts: Sequence[float]) -> Tensor:
    """Logits [n, outputs] with shifts, in place; none leave them as they are."""
    if not shifts:
        return logits
    by = logits.new_tensor(shifts)
    return logits.add_(by if task.kind == "multi" else torch.cat([-by, by]) / 2)


def _margins(task: Task, logits: Tensor) -> Tensor:
    """[n, questions], positive where the answer is yes."""
    return logits if task.kind == "multi" else logits[:, 1:] - logits[:, :1]
