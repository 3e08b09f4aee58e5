"""Shifts leave the order of answers and give as many of yes as the raw model, in every world."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import nfdist
from nfdist import seeds
from nfdist.evaluation.thresholds import matching_shifts, shift
from nfdist.model.task import Task
from nfdist.world import World
from tests.worlds import run_world

TASKS = (Task("single", 2), Task("binary", 2), Task("multi", 3))
CUTS = {1: (0, 60), 2: (0, 13, 60), 3: (0, 0, 41, 60)}  # of nodes among ranks, one of which may have none


def answers(task: Task, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Raw logits, and smoothed ones that all say no."""
    generator = seeds.generator(task.num_classes, "thresholds")
    raw, smoothed = torch.randn(2, 60, task.num_classes, generator=generator, dtype=torch.float64).to(dtype)
    if task.kind == "multi":
        return raw, smoothed - 30
    smoothed[:, 1] -= 30
    return raw, smoothed


def is_yes(task: Task, logits: Tensor) -> Tensor:
    return logits > 0 if task.kind == "multi" else logits.max(1).indices[:, None] == 1


def shifts_of_rank(world: World) -> list[tuple[float, ...]]:
    rows = slice(*list(pairwise(CUTS[world.size]))[world.rank])
    return [matching_shifts(world, task, *(one[rows] for one in answers(task))) for task in TASKS]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.kind)
def test_as_many_answer_yes_as_before(task: Task, dtype: torch.dtype) -> None:
    raw, smoothed = answers(task, dtype)
    assert not is_yes(task, smoothed).any()
    shifted = shift(task, smoothed.clone(), matching_shifts(World(), task, raw, smoothed))
    assert torch.equal(is_yes(task, shifted).sum(0), is_yes(task, raw).sum(0))
    column = slice(None) if task.kind == "multi" else slice(1, 2)
    order = (smoothed if task.kind == "multi" else smoothed - smoothed[:, :1])[:, column].argsort(0)
    assert torch.equal((shifted if task.kind == "multi" else shifted - shifted[:, :1])[:, column].argsort(0), order)


@pytest.mark.parametrize("size", [2, 3])
def test_worlds_agree(size: int) -> None:
    assert run_world(size, shifts_of_rank) == [shifts_of_rank(World())] * size


@pytest.mark.parametrize("sign", [-1, 1])
def test_all_or_nobody_may_say_yes(sign: int) -> None:
    task = TASKS[0]
    _, smoothed = answers(task)
    raw = torch.tensor([[0.0, float(sign)]]).expand(60, 2).double()
    shifted = shift(task, smoothed.clone(), matching_shifts(World(), task, raw, smoothed))
    assert is_yes(task, shifted).all() if sign > 0 else not is_yes(task, shifted).any()


def test_of_equal_answers_no_more_say_yes() -> None:
    task, raw = TASKS[0], torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    smoothed = torch.tensor([[5.0, 0.0], [5.0, 0.0], [9.0, 0.0]])
    assert not is_yes(task, shift(task, smoothed.clone(), matching_shifts(World(), task, raw, smoothed))).any()


def test_none_leave_answers_as_they_are() -> None:
    _, smoothed = answers(TASKS[0])
    assert shift(TASKS[0], smoothed, ()) is smoothed


def test_labels_of_a_rare_class_survive_smoothing(tmp_path: Path) -> None:
    """As many validation nodes are called rare as by the raw model, in predictions and for known nodes that are new."""
    stream = np.random.default_rng(0)
    rare = stream.random(240) < 0.1
    features = list(rare[:, None] + stream.normal(0, 1.0, (240, 3)))
    nodes = pd.DataFrame({"id": np.arange(240), "features": features, "label": np.where(rare, "fraud", "ok")})
    ends = stream.integers(0, 240, (3000, 2))
    alike = (rare[ends[:, 0]] == rare[ends[:, 1]]) | (stream.random(len(ends)) < 0.2)
    edges = pd.DataFrame(ends[alike], columns=["source", "target"])
    (tmp_path / "tables").mkdir()
    nodes.to_parquet(tmp_path / "tables" / "nodes.parquet")
    edges.to_parquet(tmp_path / "tables" / "edges.parquet")
    store = nfdist.partition(tmp_path / "tables", tmp_path / "graph", parts=2, split="random:0.5/0.3/0.2")
    train = {"epochs": 12, "class_weights": "balanced"}
    found = {}
    for smoothing in ("auto", "none"):
        own: dict[str, Any] = {"run": {"dir": str(tmp_path / smoothing)}, "evaluate": {"smoothing": smoothing}}
        run = nfdist.train(store.directory, model={"name": "mlp"}, train=train, observe={"port": 0}, **own)
        scores = nfdist.evaluate(run)
        found[smoothing] = pd.read_parquet(tmp_path / smoothing / "predictions.parquet").set_index("id")
    assert scores["metric"] == "roc_auc"
    valid = [one[one.split == "valid"] for one in found.values()]
    assert valid[0].smoothed.all(), "else the test says nothing"
    assert not valid[1].smoothed.any()
    counts = [int((one.label == "fraud").sum()) for one in valid]
    assert counts[0] == counts[1] > 0
    hears = edges.groupby("target").source.agg(list).add(edges.groupby("source").target.agg(list), fill_value=[])
    known = nodes.drop(columns="label").assign(neighbors=[sorted({*hears.get(node, [])} - {node}) for node in nodes.id])
    answers = nfdist.Predictor(tmp_path / "auto").predict(known).set_index("id")
    assert (answers.label == found["auto"].label.reindex(answers.index)).all()
