"""Smoothing equals its definition as matrices, in any world, partition and memory, for every kind of task."""

from itertools import cycle, product
from pathlib import Path

import pytest
import torch

from nfdist.evaluation.smoothing import Smoother, Strengths
from nfdist.store.store import Store
from nfdist.world import World
from tests.comparing import difference
from tests.evaluation.building import write_graph
from tests.evaluation.dense_smoothing import TASKS, dense_smooth, known_rows, normalized_edges
from tests.evaluation.test_full import LARGE, PAPER, SMALL, TWO_HOPS, full_graph
from tests.worlds import run_world

GRAPHS = tuple(product(("directed", "undirected"), (1, 3)))
BOTH = (Strengths(0.8, "auto", 0.6), Strengths(0.5, 2.0, 0.95, steps=3), Strengths(0.95, 0.5, 0.2))
ALONE = (Strengths(0.8, "auto"), Strengths(0.5, 1.0), Strengths(smoothing=0.8), Strengths(smoothing=0.4, steps=1))
CASES = [
    (*graph, task, strengths, budget, options)
    for (graph, task), strengths, budget, options in zip(
        [*product(GRAPHS, TASKS)] * 2, cycle([*BOTH, *ALONE]), cycle([SMALL, LARGE]), cycle([PAPER, TWO_HOPS, TWO_HOPS])
    )
]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    for kind, parts in GRAPHS:
        write_graph(folder / f"{kind} {parts}", kind, parts)
    return folder


def every_case(world: World, graphs: Path) -> list[list[list[float]]]:
    """The smoothed logits of this rank's rows."""
    found = []
    for kind, parts, task, strengths, budget, options in CASES:
        graph = full_graph(graphs / f"{kind} {parts}", options, budget, world)
        known, _ = known_rows(task, 60)
        mine = known[slice(graph.nodes.start, graph.nodes.stop)]
        found.append(Smoother(graph.propagation(), mine).apply(strengths).tolist())
    return found


@pytest.mark.parametrize("size", [1, 2, 3])
def test_it_equals_the_dense_definition(size: int, graphs: Path) -> None:
    by_rank = run_world(size, every_case, graphs) if size > 1 else [every_case(World(), graphs)]
    for index, (kind, parts, task, strengths, _, _) in enumerate(CASES):
        rows = [row for answer in by_rank for row in answer[index]]
        edges = normalized_edges(Store.open(graphs / f"{kind} {parts}"))
        wanted = dense_smooth(edges, known_rows(task, 60)[0], strengths)
        assert difference(torch.tensor(rows, dtype=torch.float64), wanted) < 1e-10, CASES[index][:4]


def test_it_tells_of_the_last_iterates_but_one(graphs: Path) -> None:
    graph = full_graph(graphs / "directed 3", PAPER, SMALL)
    known, strengths = known_rows(TASKS[2], 60)[0], BOTH[0]
    told = {}

    def keep(name: str, width: int, read: object) -> None:
        told[name] = read(slice(0, 60)).clone()  # type: ignore[operator]
        assert told[name].shape == (60, width)

    smoother = Smoother(graph.propagation(), known)
    smoother.apply(strengths, keep)
    edges = normalized_edges(Store.open(graphs / "directed 3"))
    seven = Strengths(strengths.correction, strengths.scale, steps=strengths.steps - 1)
    errors = known.errors()
    for _ in range(seven.steps):
        told_next = 0.8 * edges @ (told_next if _ else errors) + 0.2 * errors
    assert difference(told["errors"], told_next) < 1e-10
    assert told.keys() == {"errors", "smoothed"}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.kind)
def test_no_training_label_but_its_own_rows_are_looked_at(task: object, graphs: Path) -> None:
    graph = full_graph(graphs / "undirected 1", PAPER, LARGE)
    known, _ = known_rows(task, 60)  # type: ignore[arg-type]
    first = Smoother(graph.propagation(), known).apply(BOTH[0]).clone()
    labels = known.labels.clone()
    labels[~known.training] = 1
    second = Smoother(graph.propagation(), type(known)(known.task, known.logits, labels, known.training)).apply(BOTH[0])
    assert torch.equal(first, second)
