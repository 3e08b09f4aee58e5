"""Which strengths of smoothing a model gets: those with the best validation score, the weaker of equal ones.

x_K is a sum of the powers Â^t x_0, whatever the strength: one series of products serves all of them, and sums are kept
of validation rows alone.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nfdist import files
from nfdist.collectives import broadcast_text, together
from nfdist.errors import CheckpointError
from nfdist.evaluation.metrics.metric import METRICS
from nfdist.evaluation.placement import ROWS_AT_ONCE
from nfdist.evaluation.scores import Scores, direction, score
from nfdist.evaluation.smoothing import AUTO, STEPS, Smoother, Strengths, answers_of, logits_of
from nfdist.evaluation.thresholds import matching_shifts
from nfdist.graph.split import has_label
from nfdist.graph.workers import Workers
from nfdist.model.loading import TrainedModel
from nfdist.runs.ranking import rank
from nfdist.runs.records import read_record, write_record
from nfdist.runs.run import STRENGTHS_FOLDER, Run
from nfdist.store.source_graph import VALID
from nfdist.world import World

# What is tried, from weak to strong. Chosen: coarse enough for few validation nodes, up to what so few steps can carry.
CORRECTIONS = (0.5, 0.8, 0.95)
SCALES: tuple[float | str, ...] = (0.5, 1.0, 2.0, AUTO)
SMOOTHINGS = (0.2, 0.4, 0.6, 0.8, 0.95)
SERIES = 3  # of products: errors, and answers without and with the correction, which is an iteration more


def sweeps(strengths: Strengths | None) -> int:
    """How often all rows are swept over to apply strengths, or, with None, also to choose them: most of the work."""
    if strengths is None:
        return (SERIES + 1 + 2) * (STEPS + 1)
    return ((strengths.correction is not None) + (strengths.smoothing is not None)) * (strengths.steps + 1)


def spared_sweeps(strengths: Strengths) -> int:
    """How many of `sweeps(None)` are not needed once these have been chosen."""
    return 2 * (STEPS + 1) - sweeps(strengths)


class Choice:
    """The candidates of one model, scored by their validation nodes. Every rank must make one, and call together."""

    def __init__(self, smoother: Smoother, raw: Scores, split: Tensor) -> None:
        self._smoother, self._metric = smoother, raw.metric
        rows, propagation = smoother.rows, smoother.propagation
        self._valid = (has_label(rows.labels) & (split.to(rows.labels.device) == VALID)).nonzero()[:, 0]
        self._in_order = self._valid.cpu()
        most = max(len(CORRECTIONS), len(SMOOTHINGS))
        self._sums = propagation.tensor(most, len(self._valid), smoother.width)
        self._logits = propagation.tensor(len(self._valid), smoother.outputs)
        self._best_logits = propagation.tensor(*self._logits.shape) if METRICS[self._metric].by_order else None
        self._best, self._rank = Strengths(), self._ranked(raw)

    def choose(self) -> Strengths:
        """The best strengths. Every rank must call this."""
        self._smooth(Strengths())
        correction = self._correct()
        if correction is not None:
            self._smooth(correction)
        if self._best_logits is None or not self._best.any:
            return self._best
        known, world = self._smoother.rows, self._smoother.propagation.world
        shifts = matching_shifts(world, known.task, known.logits[self._valid], self._best_logits)
        return replace(self._best, shifts=shifts)

    def _correct(self) -> Strengths | None:
        """Try all corrections; the best of them, whether or not it is better than none."""
        smoother = self._smoother
        self._sum_up(smoother.errors, CORRECTIONS, smoother.outputs)
        mean_error, best, best_rank = smoother.mean_error, None, -torch.inf
        for index, correction in enumerate(CORRECTIONS):
            for scale in SCALES:

                def logits(place: slice, index: int = index, scale: float | str = scale) -> Tensor:
                    errors = self._sums[index, place, : smoother.outputs]
                    corrected = smoother.rows[self._valid[place]].corrected(errors, scale, mean_error)
                    return logits_of(smoother.task, corrected)

                strengths = Strengths(correction, scale)
                found = self._try(strengths, logits)
                if found > best_rank:
                    best, best_rank = strengths, found
        return best

    def _smooth(self, corrected: Strengths) -> None:
        """Try all smoothings after a correction, or after none."""
        smoother = self._smoother
        smoother.correct(corrected)
        self._sum_up(smoother.start, SMOOTHINGS, smoother.width)
        for index, smoothing in enumerate(SMOOTHINGS):

            def logits(place: slice, index: int = index) -> Tensor:
                return logits_of(smoother.task, answers_of(smoother.task, self._sums[index, place]))

            self._try(Strengths(corrected.correction, corrected.scale, smoothing), logits)

    def _sum_up(self, first: Callable[[slice], Tensor], strengths: Sequence[float], width: int) -> None:
        """x_K of validation rows for all strengths: (1 - s) Σ_t<K s^t Â^t x_0 + s^K Â^K x_0."""
        self._sums.zero_()

        def see(step: int, rows: slice, made: Tensor) -> None:
            first, stop = torch.searchsorted(self._in_order, torch.tensor([rows.start, rows.stop])).tolist()
            some = made.index_select(0, self._valid[first:stop] - rows.start)
            for index, strength in enumerate(strengths):
                share = strength**step * (1 if step == STEPS else 1 - strength)
                self._sums[index, first:stop, :width].add_(some, alpha=share)

        self._smoother.powers(first, STEPS, width, see)

    def _try(self, strengths: Strengths, logits: Callable[[slice], Tensor]) -> float:
        """Remember strengths that are better than all before."""
        smoother = self._smoother

        def fill(place: slice) -> None:
            self._logits[place] = logits(place)

        with Workers() as workers:
            list(workers.map(fill, self._places()))
        labels = smoother.rows.labels[self._valid]
        split = torch.full_like(self._valid, VALID, dtype=torch.int8)
        world = smoother.propagation.world
        found = self._ranked(score(world, smoother.task, self._metric, self._logits, labels, split))
        if found > self._rank:
            self._rank, self._best = found, strengths
            if self._best_logits is not None:
                self._best_logits, self._logits = self._logits, self._best_logits
        return found

    def _ranked(self, scores: Scores) -> float:
        """What to compare by, larger is better."""
        return rank({"valid": scores.valid.value, **direction(self._metric)})

    def _places(self) -> list[slice]:
        return [slice(start, start + ROWS_AT_ONCE) for start in range(0, len(self._valid), ROWS_AT_ONCE)]


def read_strengths(world: World, run: Run | None, trained: TrainedModel, metric: str) -> Strengths | None:
    """The strengths that were chosen for this very model, if they were.

    Every rank must call this; only the first has the run.
    """

    def read() -> dict[str, Any] | None:
        if run is None:
            return None
        path, cure = _file(run, trained), "remove it, and the strengths of smoothing are chosen anew"
        found = read_record(path, run.id, cure)
        if found is None or (found.get("checkpoint"), found.get("metric")) != (trained.fingerprint, metric):
            return None
        try:
            return Strengths.of(found["strengths"]).facts()
        except (LookupError, TypeError):
            raise CheckpointError(f"{path} holds no strengths that this nfdist knows: {cure}") from None

    facts = json.loads(broadcast_text(world, json.dumps(together(world, read)), 0, "strengths"))
    return None if facts is None else Strengths.of(facts)


def write_strengths(world: World, run: Run | None, trained: TrainedModel, metric: str, strengths: Strengths) -> None:
    """Remember strengths in the run, for evaluations to come. Every rank must call this; only the first has the run."""

    def write() -> None:
        if run is None:
            return
        path = _file(run, trained)
        with files.disk_errors_as(CheckpointError, path):
            path.parent.mkdir(exist_ok=True)
        facts = {"checkpoint": trained.fingerprint, "metric": metric, "strengths": strengths.facts()}
        write_record(path, run.id, facts)

    together(world, write)


def _file(run: Run, trained: TrainedModel) -> Path:
    return run.path / STRENGTHS_FOLDER / f"seed-{trained.seed}-step-{trained.step:08d}.json"
