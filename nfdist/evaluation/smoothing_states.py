"""What an evaluation leaves of its smoothing, so that new nodes take part in their neighbors' smoothed answers.

smoothing-roots.npy    one over the root of every node's out-degree, [nodes, 1]
smoothing-errors.npy   E of all nodes before the last step, if there is a correction
smoothing-answers.npy  G of all nodes before the last step, if there is a smoothing
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nfdist.evaluation.propagation import Make, Propagation
from nfdist.evaluation.smoothed import Smoothed
from nfdist.evaluation.smoothing import Rows, Strengths, answers_of, logits_of
from nfdist.evaluation.stored_relation import stored_sums
from nfdist.evaluation.thresholds import shift
from nfdist.graph.hop import Hop
from nfdist.store.gate import Column

ROOTS, ERRORS, ANSWERS = (f"smoothing-{name}.npy" for name in ("roots", "errors", "answers"))

Write = Callable[[str, int, torch.dtype, Make], None]  # of StatesWriter


class SmoothingWriter:
    """Is told of the iterates of a smoothing and writes them among an evaluation's states."""

    def __init__(self, write: Write, propagation: Propagation) -> None:
        self._write, self._propagation = write, propagation

    def __call__(self, name: str, width: int, read: Make) -> None:
        """Write the last iterate but one. Every rank must call this."""
        self._write(f"smoothing-{name}.npy", width, self._propagation.dtype, read)

    def finish(self, smoothed: Smoothed) -> dict[str, Any] | None:
        """Write the rest; what is to be remembered beside the files. Every rank must call this."""
        if not smoothed.strengths.any:
            return None
        shard = self._propagation.shard
        self._write(ROOTS, 1, self._propagation.dtype, lambda rows: shard.source_factors(rows)[:, :1])
        return {"strengths": smoothed.strengths.facts(), "mean_error": smoothed.mean_error}


@dataclass(frozen=True)
class SmoothingStates:
    """Strengths, and mapped rows of all nodes."""

    strengths: Strengths
    mean_error: float
    roots: Column
    errors: Column | None
    answers: Column | None

    @staticmethod
    def of(facts: Mapping[str, Any] | None, mapped: Mapping[str, Column]) -> "SmoothingStates | None":
        """What was remembered, with its files; LookupError or TypeError if that is something else."""
        if facts is None:
            return None
        strengths = Strengths.of(facts["strengths"])
        errors = None if strengths.correction is None else mapped[ERRORS]
        answers = None if strengths.smoothing is None else mapped[ANSWERS]
        return SmoothingStates(strengths, float(facts["mean_error"]), mapped[ROOTS], errors, answers)

    def logits(self, known: Rows, node_ids: Tensor, hops: Sequence[Hop]) -> Tensor:
        """Smoothed logits [n, outputs] of new nodes by the edges to them; `node_ids` [n] is -1 for none of the graph.

        The last step of both kinds is made for them. What it takes of a node itself is its iterate before, or for one
        that the graph does not have what iterations start from; `hops` are those of the graph and, if new nodes are
        together, those among them.
        """
        answers = known.probabilities()
        if self.errors is not None:
            arrived = _last_step(self.errors, known.errors(), self.strengths.correction, node_ids, hops)
            answers = known.corrected(arrived, self.strengths.scale, self.mean_error)
        if self.answers is not None:
            start = known.start(answers)
            answers = answers_of(known.task, _last_step(self.answers, start, self.strengths.smoothing, node_ids, hops))
        return shift(known.task, logits_of(known.task, answers), self.strengths.shifts)


def _last_step(before: Column, first: Tensor, strength: float | None, node_ids: Tensor, hops: Sequence[Hop]) -> Tensor:
    assert strength is not None
    own = node_ids.clamp(min=0)
    own_rows = torch.where((node_ids >= 0)[:, None], before.at(own.numpy())[own], first)
    return torch.lerp(first, stored_sums(hops, before, own_rows), strength)
