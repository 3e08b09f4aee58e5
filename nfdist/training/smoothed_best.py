"""What the best checkpoint of a seed comes to with smoothed answers; the raw scores have chosen it."""

from typing import Any

import torch
from torch import Tensor

from nfdist.collectives import broadcast_text, together
from nfdist.errors import CheckpointError
from nfdist.evaluation.scores import Scores, score
from nfdist.evaluation.smoothed import Subject, smooth, smooth_model
from nfdist.evaluation.smoothing import Rows
from nfdist.model.loading import TrainedModel, broadcast_model, read_model
from nfdist.runs.checkpoint import Checkpoint
from nfdist.runs.run import Run
from nfdist.store.source_graph import TRAIN
from nfdist.training.trainer import Job, Trainer


def smoothed_best(job: Job, trainer: Trainer, run: Run | None) -> dict[str, Any] | None:
    """Smoothed scores of a seed's best checkpoint; None where there is none, or no smoothing.

    Strengths stay in the run. A trial has no run, and its trainer kept the answers. Every rank must call this; only the
    first has the run.
    """
    graph, world = job.evaluation_graph, job.world
    if job.config.evaluate.smoothing == "none" or graph is None:
        return None
    world.watch.phase = f"seed {trainer.seed}, smoothing"
    nodes = torch.arange(graph.nodes.start, graph.nodes.stop)
    labels, own = job.graph.store.labels(nodes), trainer.split[nodes]

    def known(logits: Tensor) -> tuple[Rows, Tensor, Scores]:
        raw = score(world, job.task, job.metric, logits, labels, own)
        return Rows.beside(job.task, logits, labels, own == TRAIN), own, raw

    if job.trial is not None:
        assert trainer.best_logits is not None  # the first evaluation is always the best so far
        in_trial = smooth(graph, world, *known(trainer.best_logits), quiet=True)
        return None if in_trial is None else in_trial.facts()
    mine = together(world, lambda: None if run is None else _best(run, trainer.seed), CheckpointError)
    if broadcast_text(world, "yes" if mine is not None else "no", 0) == "no":
        return None
    trained = broadcast_model(world, mine)
    logits = graph.evaluate(trained.model, trained.evaluation_seed, split=trainer.split).logits
    smoothed = smooth_model(graph, world, run, Subject(trained, *known(logits)))
    return None if smoothed is None else {"epoch": trained.epoch, "step": trained.step, **smoothed.facts()}


def _best(run: Run, seed: int) -> TrainedModel | None:
    best = run.best_of(seed)
    path = None if best is None else run.checkpoint_paths(seed).get(best["step"])
    return None if path is None else read_model(run.config, Checkpoint.open(path))
