"""An evaluation's answers after smoothing: strengths found or chosen, then applied and scored."""

import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nfdist import log
from nfdist.evaluation.evaluation_graph import EvaluationGraph
from nfdist.evaluation.scores import Scores, direction, score
from nfdist.evaluation.smoothing import Keep, Rows, Smoother, Strengths
from nfdist.evaluation.strengths import Choice, read_strengths, spared_sweeps, sweeps, write_strengths
from nfdist.model.loading import TrainedModel
from nfdist.runs.run import Run
from nfdist.world import World

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Smoothed:
    """Logits [n, outputs] of this rank's nodes, the raw ones where strengths are none, and their scores.

    Logits stay as they are for as long as this is held.
    """

    strengths: Strengths
    logits: Tensor
    scores: Scores
    mean_error: float
    seconds: float

    def facts(self) -> dict[str, Any]:
        """The scores, strengths and cost as plain values."""
        return {
            **score_facts(self.scores),
            "strengths": self.strengths.facts(),
            "seconds": self.seconds,
        }


def score_facts(scores: Scores) -> dict[str, Any]:
    """The scores and losses of the three splits as plain values."""
    splits = {name: getattr(scores, name) for name in SPLITS}
    return {
        "metric": scores.metric,
        **direction(scores.metric),
        **{name: one.value for name, one in splits.items()},
        "loss": {name: one.loss for name, one in splits.items()},
    }


@dataclass(frozen=True)
class Subject:
    """A model and what it says of this rank's nodes: the rows, their split [n], and the scores of all ranks' rows."""

    trained: TrainedModel
    known: Rows
    split: Tensor
    raw: Scores


def smooth_model(
    graph: EvaluationGraph,
    world: World,
    run: Run | None,
    subject: Subject,
    *,
    keep: Keep | None = None,
    remember: bool = True,
) -> Smoothed | None:
    """Smooth by the strengths that the run has for a model, or that are chosen now and, to `remember`, put there.

    None, with a notice, where validation nodes cannot tell. Every rank must call this; only the first has the run.
    """
    stored = read_strengths(world, run, subject.trained, subject.raw.metric)
    smoothed = smooth(graph, world, subject.known, subject.split, subject.raw, stored, keep)
    if smoothed is not None and stored is None and remember:
        write_strengths(world, run, subject.trained, subject.raw.metric, smoothed.strengths)
    return smoothed


def smooth(
    graph: EvaluationGraph,
    world: World,
    known: Rows,
    split: Tensor,
    raw: Scores,
    strengths: Strengths | None = None,
    keep: Keep | None = None,
    quiet: bool = False,
) -> Smoothed | None:
    """Smooth the answers of a graph's model, this rank's rows of which are `known`. Every rank must call this.

    Strengths are chosen where none are given; None is returned, with a notice, where the validation nodes cannot tell.
    """
    started = time.perf_counter()
    if strengths is None and raw.valid.value is None:
        if world.rank == 0:
            log.notice(f"no smoothing: the validation nodes have no {raw.metric} to choose its strengths by")
        return None
    if strengths is not None and not strengths.any:
        return Smoothed(strengths, known.logits, raw, 0.0, time.perf_counter() - started)
    tells = world.rank == 0 and not quiet
    shown = log.progress(sweeps(strengths) * len(graph.nodes), "smooth") if tells else nullcontext()
    with shown as progress:
        smoother = Smoother(graph.propagation(), known, progress)
        if strengths is None:
            strengths = Choice(smoother, raw, split).choose()
            if progress is not None:
                progress.advance(spared_sweeps(strengths) * len(graph.nodes))
        logits, scores = known.logits, raw
        if strengths.any:
            logits = smoother.apply(strengths, keep)
            scores = score(world, known.task, raw.metric, logits, known.labels, split)
    return Smoothed(strengths, logits, scores, smoother.mean_error, time.perf_counter() - started)
