"""What the best checkpoint of a seed comes to with smoothed answers; the raw scores have chosen it."""

from typing import Any

import torch
from torch import Tensor

from nfdist.collectives import broadcast_text, together
from nfdist.errors import CheckpointError
from nfdist.evaluation.scores import score
from nfdist.evaluation.smoothed import Subject, smooth_model
from nfdist.evaluation.smoothing import Rows
from nfdist.model.loading import TrainedModel, broadcast_model, read_model
from nfdist.runs.checkpoint import Checkpoint
from nfdist.runs.run import Run
from nfdist.store.source_graph import TRAIN
from nfdist.training.trainer import Job


def smoothed_best(job: Job, seed: int, split: Tensor, run: Run | None) -> dict[str, Any] | None:
    """Smoothed scores of a seed's best checkpoint; None where there is none, or no smoothing.

    Strengths stay in the run. Every rank must call this, with the split of all nodes; only the first has the run.
    """
    graph, world = job.evaluation_graph, job.world
    if job.config.evaluate.smoothing == "none" or graph is None:
        return None
    mine = together(world, lambda: None if run is None else _best(run, seed), CheckpointError)
    if broadcast_text(world, "yes" if mine is not None else "no", 0) == "no":
        return None
    trained = broadcast_model(world, mine)
    world.watch.phase = f"seed {seed}, smoothing"
    logits = graph.evaluate(trained.model, trained.evaluation_seed, split=split).logits
    nodes = torch.arange(graph.nodes.start, graph.nodes.stop)
    labels, own = job.graph.store.labels(nodes), split[nodes]
    raw = score(world, job.task, job.metric, logits, labels, own)
    subject = Subject(trained, Rows(job.task, logits, labels, own == TRAIN), own, raw)
    smoothed = smooth_model(graph, world, run, subject)
    return None if smoothed is None else {"epoch": trained.epoch, "step": trained.step, **smoothed.facts()}


def _best(run: Run, seed: int) -> TrainedModel | None:
    best = run.best_of(seed)
    path = None if best is None else run.checkpoint_paths(seed).get(best["step"])
    return None if path is None else read_model(run.config, Checkpoint.open(path))
