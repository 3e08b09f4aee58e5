"""Correct and smooth: answers of any model, improved by the training labels of nodes nearby.

Huang et al. 2021, "Combining Label Propagation and Simple Models Out-performs Graph Neural Networks". With P the
model's probabilities, Y the training labels and Â the normalized edges of the whole graph with loops:

    correct   E_0 = Y - P where a training label is known, 0 elsewhere;   E_t+1 = a Â E_t + (1 - a) E_0
              P' = P + E_K times a factor, or each row of it as long as training errors are on average ("auto")
    smooth    G_0 = P', and Y where a training label is known;            G_t+1 = b Â G_t + (1 - b) G_0

The answer is G_K divided by what the same steps make of 1 for every node: a mean of answers, which Â alone is not.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nfdist.collectives import total
from nfdist.evaluation.propagation import Make, Propagation
from nfdist.evaluation.thresholds import shift
from nfdist.graph.split import has_label
from nfdist.log import Progress
from nfdist.model.task import Task

# How far labels travel: part of the definition, as a and b are, and no error that should be small. Chosen: 6, 8 and 50
# steps gave the same test scores on Cora within a few tenths, and 6 of both kinds cost less than two evaluations of the
# paper's Amazon2M model (benchmarks/smoothing.py).
STEPS = 6
AUTO = "auto"
MOST_FACTOR = 1000.0  # by which "auto" raises errors that hardly arrived, as in the published code
LEAST = 1e-6  # probability in a logit: a wrong answer costs at most 13.8

Keep = Callable[[str, int, Make], None]  # the name of an iterate, its width, and what reads its rows


@dataclass(frozen=True)
class Strengths:
    """a and the scale of the correction, and b of the smoothing; None where there is none.

    `shifts` are those of nfdist/evaluation/thresholds.py, if any.
    """

    correction: float | None = None
    scale: float | str | None = None
    smoothing: float | None = None
    steps: int = STEPS
    shifts: tuple[float, ...] = ()

    @property
    def any(self) -> bool:
        """Whether they change anything."""
        return self.correction is not None or self.smoothing is not None

    def facts(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "shifts": list(self.shifts)}

    @staticmethod
    def of(facts: Mapping[str, Any]) -> "Strengths":
        """From what `facts` gave; TypeError if that is something else."""
        return Strengths(**{**facts, "shifts": tuple(facts.get("shifts", ()))})


@dataclass(frozen=True)
class Rows:
    """What is known of some nodes: a model's logits [n, outputs], labels [n] or [n, questions], who may be looked at.

    `training` [n] says whose labels are; all others might as well be missing.
    """

    task: Task
    logits: Tensor
    labels: Tensor
    training: Tensor

    @staticmethod
    def beside(task: Task, logits: Tensor, labels: Tensor, training: Tensor) -> "Rows":
        """Rows whose labels are brought to where their logits are."""
        return Rows(task, logits, labels.to(logits.device), training.to(logits.device))

    def __getitem__(self, rows: slice | Tensor) -> "Rows":
        return Rows(self.task, self.logits[rows], self.labels[rows], self.training[rows])

    def probabilities(self) -> Tensor:
        """P, [n, outputs]."""
        return self.logits.sigmoid() if self.task.kind == "multi" else self.logits.softmax(1)

    def errors(self) -> Tensor:
        """E_0, [n, outputs]."""
        errors = torch.zeros_like(self.logits)
        rows = self.training.nonzero()[:, 0]  # often few
        some = self[rows]
        known, truth = some._truth()
        return errors.index_copy_(0, rows, truth.sub_(some.probabilities()).mul_(known))

    def corrected(self, errors: Tensor, scale: float | str | None, mean_error: float) -> Tensor:
        """P' by the errors [n, outputs] that arrived."""
        if scale == AUTO:
            least = max(mean_error / MOST_FACTOR, torch.finfo(errors.dtype).tiny)
            lengths = errors.abs().sum(1, keepdim=True).clamp_(min=least)
            return self.probabilities().addcmul_(errors, mean_error / lengths)
        assert isinstance(scale, float)
        return self.probabilities().add_(errors, alpha=scale)

    def start(self, corrected: Tensor) -> Tensor:
        """G_0 of P' [n, outputs]; for questions with a last column of 1, which is to say what the sums make of it."""
        known, truth = self._truth()
        answers = torch.where(known, truth, corrected)
        return F.pad(answers, (0, 1), value=1.0) if self.task.kind == "multi" else answers

    def _truth(self) -> tuple[Tensor, Tensor]:
        """Where a training label is known, and what an all-knowing model would answer there."""
        labels, training = self.labels, self.training
        if self.task.kind == "multi":
            return (labels >= 0) & training[:, None], labels.to(self.logits.dtype)
        known = (labels >= 0) & training
        truth = torch.zeros_like(self.logits).scatter_(1, labels.clamp(min=0).long()[:, None], 1.0)
        return known[:, None], truth


def smoothed_width(task: Task) -> int:
    """The columns of G_t: classes, whose sum tells what the sums make of 1, or questions and one more."""
    return task.num_classes + (task.kind == "multi")


def answers_of(task: Task, smoothed: Tensor) -> Tensor:
    """Answers [n, outputs] from G_K [n, smoothed_width]."""
    return smoothed[:, :-1] / smoothed[:, -1:] if task.kind == "multi" else smoothed


def logits_of(task: Task, answers: Tensor) -> Tensor:
    """Logits that scores, losses and predictions take for those of a model; classes need not sum to 1."""
    log = answers.clamp(min=LEAST).log_()
    if task.kind == "multi":
        return log.sub_((1 - answers).clamp_(min=LEAST).log_())
    # The loss of a yes-or-no task asks of each class alone whether its logit is positive.
    return log.sub_(log.mean(1, keepdim=True)) if task.kind == "binary" else log


class Smoother:
    """The answers of one model on this rank's nodes, to be smoothed. Every rank must make one, and call together.

    It holds two states of all rows and one [n, outputs].
    """

    def __init__(self, propagation: Propagation, rows: Rows, progress: Progress | None = None) -> None:
        self.propagation, self.rows, self.task, self._progress = propagation, rows, rows.task, progress
        self.outputs, self.width = rows.task.num_classes, smoothed_width(rows.task)
        self._states = [propagation.states(self.width) for _ in range(2)]
        self._answers = propagation.tensor(len(rows.logits), self.outputs)

    @cached_property
    def mean_error(self) -> float:
        """The mean L1 length of a training error."""

        def add(rows: slice) -> tuple[float, int]:
            some = self.rows[rows]
            lengths = some.errors().abs_().sum(dtype=torch.float64)
            return float(lengths), int((has_label(some.labels) & some.training).sum())

        found = torch.tensor([(0.0, 0), *self.propagation.each(add, self.outputs)], dtype=torch.float64)
        errors, nodes = total(self.propagation.world, found.sum(0), "training errors").tolist()
        return float(errors / max(nodes, 1.0))

    def apply(self, strengths: Strengths, keep: Keep | None = None) -> Tensor:
        """Smoothed logits [n, outputs], as they are until the next call. Every rank must call this.

        `keep` is told of the last but one iterate of both kinds, from which one step leads to the answer.
        """
        self.correct(strengths, keep)
        if strengths.smoothing is not None:
            states = self._iterate(self.start, strengths.smoothing, strengths.steps, self.width, keep, "answers")
            self._fill(lambda rows: answers_of(self.task, self.propagation.load(states, rows, self.width)))
        self._fill(lambda rows: shift(self.task, logits_of(self.task, self._answers[rows]), strengths.shifts))
        return self._answers

    def correct(self, strengths: Strengths, keep: Keep | None = None) -> None:
        """Make P', from which smoothing starts. Every rank must call this."""
        if strengths.correction is None:
            self._fill(lambda rows: self.rows[rows].probabilities())
            return
        mean_error = self.mean_error
        states = self._iterate(self.errors, strengths.correction, strengths.steps, self.outputs, keep, "errors")

        def corrected(rows: slice) -> Tensor:
            errors = self.propagation.load(states, rows, self.outputs)
            return self.rows[rows].corrected(errors, strengths.scale, mean_error)

        self._fill(corrected)

    def errors(self, rows: slice) -> Tensor:
        """E_0 of some rows."""
        return self.rows[rows].errors()

    def start(self, rows: slice) -> Tensor:
        """G_0 of some rows, after `correct`."""
        return self.rows[rows].start(self._answers[rows])

    def powers(self, first: Make, steps: int, width: int, see: Callable[[int, slice, Tensor], None]) -> None:
        """Tell of Â^t first for t = 0 .. steps, a chunk of rows at a time. Every rank must call this."""
        states, spare = self._states
        make = first
        for step in range(steps):

            def seen(rows: slice, step: int = step, make: Make = make) -> Tensor:
                made = make(rows)
                see(step, rows, made)
                return made

            self.propagation.put(states, seen, width, self._progress)
            make = partial(self.propagation.sums, states, width=width)
            states, spare = spare, states
        self.propagation.each(lambda rows: see(steps, rows, make(rows)), width, self._progress)

    def _iterate(self, first: Make, strength: float, steps: int, width: int, keep: Keep | None, name: str) -> Tensor:
        """x_steps of x_t+1 = strength Â x_t + (1 - strength) x_0 in states."""
        states, spare = self._states
        self.propagation.put(states, first, width, self._progress)
        for step in range(steps):
            if keep is not None and step == steps - 1:
                keep(name, width, partial(self.propagation.load, states, width=width))

            def make(rows: slice, states: Tensor = states) -> Tensor:
                sums = self.propagation.sums(states, rows, width)  # first: it leaves nothing in the caches
                return torch.lerp(first(rows), sums, strength)

            self.propagation.put(spare, make, width, self._progress)
            states, spare = spare, states
        return states

    def _fill(self, make: Make) -> None:
        """Give every row of the answers what is made of it."""

        def fill(rows: slice) -> None:
            self._answers[rows] = make(rows)

        self.propagation.each(fill, self.width)
