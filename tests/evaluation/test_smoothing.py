"""Smoothing equals its definition as matrices, in any world, partition and memory, for every kind of task."""

from dataclasses import replace
from itertools import cycle, product
from pathlib import Path

import pytest
import torch

from nfdist.config import RelationConfig
from nfdist.evaluation.budget import Budget
from nfdist.evaluation.evaluation_graph import EvaluationGraph
from nfdist.evaluation.in_memory import InMemoryGraph
from nfdist.evaluation.smoothing import Rows, Smoother, Strengths, logits_of
from nfdist.model.task import Task
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.world import World
from tests.comparing import difference
from tests.evaluation.building import LARGE, PAPER, POWERS, SMALL, TWO_HOPS, Options, full_graph, write_graph
from tests.evaluation.dense_smoothing import TASKS, dense_smooth, known_rows, normalized_edges
from tests.worlds import run_world

GRAPHS = tuple(product(("directed", "undirected"), (1, 3)))
BOTH = (Strengths(0.8, "auto", 0.6), Strengths(0.5, 2.0, 0.95, steps=3), Strengths(0.95, 0.5, 0.2))
ALONE = (Strengths(0.8, "auto"), Strengths(0.5, 1.0), Strengths(smoothing=0.8), Strengths(smoothing=0.4, steps=1))
SHIFTS = {"single": (), "binary": (-0.7,), "multi": (1.5, -2.0, 0.1)}
PLAIN, BLIND = (
    Options(PAPER.model, PAPER.attention, relation)
    for relation in (RelationConfig(order=1, normalize=False), RelationConfig(order=0))
)
CASES = [
    (*graph, task, strengths, budget, options)
    for (graph, task), strengths, budget, options in zip(
        [*product(GRAPHS, TASKS)] * 2,
        cycle([*BOTH, *ALONE]),
        cycle([SMALL, LARGE]),
        cycle([PAPER, TWO_HOPS, None, PLAIN, BLIND, POWERS]),
    )
]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    for kind, parts in GRAPHS:
        write_graph(folder / f"{kind} {parts}", kind, parts)
    return folder


def evaluation_graph(world: World, path: Path, options: Options | None, budget: Budget) -> EvaluationGraph:
    """What a model of these options is evaluated on; without any, a baseline."""
    if options is not None:
        return full_graph(path, options, budget, world)
    store = Store.open(path)
    return InMemoryGraph(store, Hops.open(store, 1), RelationConfig(order=1), world, torch.float64)


def every_case(world: World, graphs: Path) -> list[list[list[float]]]:
    """The smoothed logits of this rank's rows."""
    found = []
    for kind, parts, task, strengths, budget, options in CASES:
        graph = evaluation_graph(world, graphs / f"{kind} {parts}", options, budget)
        known, _ = known_rows(task, 60)
        mine = known[slice(graph.nodes.start, graph.nodes.stop)]
        found.append(Smoother(graph.propagation(), mine).apply(replace(strengths, shifts=SHIFTS[task.kind])).tolist())
    return found


@pytest.mark.parametrize("size", [1, 2, 3])
def test_it_equals_the_dense_definition(size: int, graphs: Path) -> None:
    by_rank = run_world(size, every_case, graphs) if size > 1 else [every_case(World(), graphs)]
    for index, (kind, parts, task, strengths, _, _) in enumerate(CASES):
        rows = [row for answer in by_rank for row in answer[index]]
        edges = normalized_edges(Store.open(graphs / f"{kind} {parts}"))
        shifted = replace(strengths, shifts=SHIFTS[task.kind])
        wanted = dense_smooth(edges, known_rows(task, 60)[0], shifted)
        assert difference(torch.tensor(rows, dtype=torch.float64), wanted) < 1e-10, CASES[index][:4]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.kind)
def test_only_training_labels_are_looked_at(task: Task, graphs: Path) -> None:
    graph = full_graph(graphs / "undirected 1", PAPER, LARGE)
    known, _ = known_rows(task, 60)
    training = known.training if known.labels.ndim == 1 else known.training[:, None]
    found = []
    for labels in (known.labels, known.labels.where(training, 1), 1 - known.labels.clamp(0, 1)):
        rows = Rows(task, known.logits, labels, known.training)
        found.append(Smoother(graph.propagation(), rows).apply(BOTH[0]).clone())
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_equal_answers_stay_as_they_are() -> None:
    answers = torch.full((3, 4), 0.25, dtype=torch.float64)
    assert torch.equal(logits_of(TASKS[0], answers).softmax(1), answers)
    assert torch.allclose(logits_of(TASKS[1], answers[:, :2] * 1.7).softmax(1), torch.full((3, 2), 0.5).double())
    assert torch.allclose(logits_of(TASKS[2], answers).sigmoid(), answers)


def test_answers_outside_of_probabilities_have_finite_logits() -> None:
    wild = torch.tensor([[-0.5, 1.5], [0.0, 1.0]])
    for task in (Task("single", 2), Task("binary", 2), Task("multi", 2)):
        logits = logits_of(task, wild)
        assert logits.isfinite().all()
        assert (logits[:, 1] > logits[:, 0]).all()
