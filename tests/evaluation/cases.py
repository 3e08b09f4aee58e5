"""Predictions to score, and what a rank of a world does with its share of them."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nfdist import seeds
from nfdist.errors import ConfigError
from nfdist.evaluation.scores import score
from nfdist.model.task import Task
from nfdist.store.source_graph import TEST, TRAIN, VALID
from nfdist.world import World

NODES = 240
COUNTED = ("accuracy", "f1_macro", "f1_micro")


@dataclass(frozen=True)
class Case:
    """What one process that holds all nodes would score."""

    task: Task
    metric: str
    logits: Tensor
    labels: Tensor
    split: Tensor

    def on(self, world: World) -> "Case":
        """The share of a rank: uneven, and nothing on the second of three."""
        drawn = torch.rand(len(self.split), generator=seeds.generator(0, "ranks"))
        mine = (world.size - 1) * (drawn < 0.2) == world.rank
        return replace(self, logits=self.logits[mine], labels=self.labels[mine], split=self.split[mine])

    def score(self, world: World) -> dict[str, Any]:
        return asdict(score(world, self.task, self.metric, self.logits, self.labels, self.split))


def build_cases() -> dict[str, Case]:
    """Every metric of every kind of task, with equal scores, missing labels and nodes in no split."""
    split = torch.randint(4, (NODES,), generator=seeds.generator(0, "split"), dtype=torch.int8)
    classes, answers, several = (_labels(*shape) for shape in ((3, NODES), (2, NODES), (2, NODES, 7)))
    several[split == TEST, 2] = 0
    several[split == TRAIN, 5] = -1
    one_sided = answers.where(split != VALID, 1).where(split != TEST, 0)
    # Nobody is of class 3, and class 4 is not even predicted.
    single = Case(Task("single", 5), "", _logits(5) - torch.tensor([0, 0, 0, 0, 99.0]), classes, split)
    binary = Case(Task("binary", 2), "", _logits(2), answers, split)
    multi = Case(Task("multi", 7), "", _logits(7), several, split)
    return {
        **{f"single {metric}": replace(single, metric=metric) for metric in COUNTED},
        **{f"binary {metric}": replace(binary, metric=metric) for metric in (*COUNTED, "roc_auc")},
        **{f"multi {metric}": replace(multi, metric=metric) for metric in (*COUNTED, "roc_auc")},
        "two classes": replace(binary, task=Task("single", 2), metric="roc_auc", logits=_logits(2).double() / 3),
        "one-sided splits": replace(binary, metric="roc_auc", labels=one_sided),
        "no labels": replace(single, metric="f1_macro", labels=classes.where(split != TEST, -1)),
        "no yes": replace(multi, metric="f1_macro", logits=-_logits(7).abs(), labels=several.clamp(max=0)),
        "proteins": Case(Task("multi", 112), "roc_auc", _logits(112), _labels(2, NODES, 112).abs(), split),
    }


def score_and_refuse(world: World) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The scores of every case from the share that this rank holds, and what it is told of mistakes."""
    return {name: case.on(world).score(world) for name, case in build_cases().items()}, _refusals(world)


def _refusals(world: World) -> list[str]:
    """What this rank is told when rank 0 has a label that does not exist, a split too few, or logits of nan."""
    case = build_cases()["single accuracy"].on(world)
    mistakes = [
        replace(case, labels=torch.full_like(case.labels, 5)),
        replace(case, split=case.split[1:]),
        replace(case, logits=torch.full_like(case.logits, torch.nan)),
    ]
    told = []
    for mistake in mistakes:
        try:
            (mistake if world.rank == 0 else case).score(world)
        except ConfigError as error:
            told.append(str(error))
    return told


def _logits(outputs: int) -> Tensor:
    """Rounded, so that many are equal."""
    return torch.randn(NODES, outputs, generator=seeds.generator(outputs, "logits")).mul(4).round() / 4


def _labels(num_classes: int, *shape: int) -> Tensor:
    return torch.randint(-1, num_classes, shape, generator=seeds.generator(num_classes, "labels"))
