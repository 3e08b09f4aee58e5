"""A metric that nfdist does not have: the mean squared error of the probability of each class."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from nfdist.evaluation.scores import resolve_metric
from nfdist.world import World
from tests.adding import add_file
from tests.evaluation.cases import Case, build_cases
from tests.training.building import run_training

BRIER = """
import torch
import torch.nn.functional as F

from nfdist.evaluation.metrics.metric import Metric, register


def squared_errors(task, logits, labels):
    errors = (logits.double().softmax(1) - F.one_hot(labels.long(), task.num_classes)).square().sum(0)
    return torch.stack([errors, torch.full_like(errors, len(labels))])


def refusal(task):
    return "needs one class a node" if task.kind == "multi" else None


register(
    Metric("brier", larger_is_better=False, averaged=True, count=squared_errors, dtype=torch.float64, refusal=refusal)
)
"""


def brier_case() -> Case:
    return replace(build_cases()["single accuracy"], metric="brier")


def train_with_brier(world: World, folder: str, config: str) -> Any:
    """The result of a training that is evaluated by it."""
    add_file("nfdist.evaluation.metrics", Path(folder) / str(world.rank), "brier", BRIER)
    return run_training(world, config)


def score_with_brier(world: World, folder: str) -> tuple[dict[str, Any], str]:
    """The scores of this rank's share, and what `resolve_metric` makes of the name."""
    add_file("nfdist.evaluation.metrics", Path(folder) / str(world.rank), "brier", BRIER)
    case = brier_case()
    return case.on(world).score(world), resolve_metric("brier", case.task)
