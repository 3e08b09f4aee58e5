"""Strengths are chosen on validation labels alone, as the dense definition chooses, alike in every world."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nfdist.config import Config
from nfdist.errors import CheckpointError
from nfdist.evaluation.scores import Scores, score
from nfdist.evaluation.smoothing import AUTO, Rows, Smoother, Strengths
from nfdist.evaluation.strengths import CORRECTIONS, SCALES, SMOOTHINGS, Choice, read_strengths, write_strengths
from nfdist.model.loading import TrainedModel
from nfdist.runs.run import Run
from nfdist.store.store import Store
from nfdist.world import World
from tests.evaluation.building import LARGE, PAPER, SMALL, TWO_HOPS, full_graph, write_graph
from tests.evaluation.dense_smoothing import TASKS, dense_smooth, known_rows, normalized_edges
from tests.evaluation.trained import trained_model
from tests.runs.building import flip
from tests.worlds import run_world

METRICS = {"single": "accuracy", "binary": "roc_auc", "multi": "roc_auc"}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    write_graph(folder / "directed", "directed", 3)
    write_graph(folder / "undirected", "undirected", 3)
    return folder


def scored(known: Rows, logits: Tensor, split: Tensor, world: World) -> Scores:
    return score(world, known.task, METRICS[known.task.kind], logits, known.labels, split)


def chosen(world: World, graphs: Path) -> list[Strengths]:
    found = []
    for task in TASKS:
        for kind, budget, options in (("directed", SMALL, TWO_HOPS), ("undirected", LARGE, PAPER)):
            graph = full_graph(graphs / kind, options, budget, world)
            rows = slice(graph.nodes.start, graph.nodes.stop)
            known, split = known_rows(task, 60)
            known, split = known[rows], split[rows]
            raw = scored(known, known.logits, split, world)
            found.append(Choice(Smoother(graph.propagation(), known), raw, split).choose())
    return found


def by_definition(edges: Tensor, known: Rows, split: Tensor) -> Strengths:
    """Every candidate by itself: none, smoothings, corrections, and smoothings after the best of these."""

    def value(strengths: Strengths) -> float:
        logits = dense_smooth(edges, known, strengths) if strengths.any else known.logits
        found = scored(known, logits, split, World()).valid.value
        assert found is not None
        return found

    corrections = [Strengths(correction, scale) for correction in CORRECTIONS for scale in SCALES]
    best = max(corrections, key=value)  # the first of equal ones
    smoothed = [replace(start, smoothing=smoothing) for start in (Strengths(), best) for smoothing in SMOOTHINGS]
    middle = len(SMOOTHINGS)
    return max([Strengths(), *smoothed[:middle], *corrections, *smoothed[middle:]], key=value)


@pytest.mark.parametrize("size", [1, 2])
def test_they_are_those_of_the_dense_definition(size: int, graphs: Path) -> None:
    by_rank = run_world(size, chosen, graphs) if size > 1 else [chosen(World(), graphs)]
    wanted = []
    for task in TASKS:
        for kind in ("directed", "undirected"):
            wanted.append(by_definition(normalized_edges(Store.open(graphs / kind)), *known_rows(task, 60)))
    assert by_rank == [wanted] * size
    assert any(strengths.any for strengths in wanted)  # so that something was chosen


def test_test_labels_are_not_looked_at(graphs: Path) -> None:
    graph = full_graph(graphs / "undirected", PAPER, LARGE)
    known, split = known_rows(TASKS[0], 60)
    found = []
    for labels in (known.labels, torch.where(split == 3, (known.labels + 1) % 4, known.labels)):
        other = Rows(known.task, known.logits, labels, known.training)
        raw = scored(other, other.logits, split, World())
        found.append(Choice(Smoother(graph.propagation(), other), raw, split).choose())
    assert found[0] == found[1]


def test_the_weaker_of_equal_ones_is_none_at_all(graphs: Path) -> None:
    graph = full_graph(graphs / "undirected", PAPER, LARGE)
    known, split = known_rows(TASKS[0], 60)
    sure = 9.0 * torch.nn.functional.one_hot(known.labels.clamp(min=0), 4).double()
    known = Rows(known.task, sure, known.labels, torch.zeros_like(known.training))  # nothing to learn from
    raw = scored(known, sure, split, World())
    assert raw.valid.value == 1.0
    assert Choice(Smoother(graph.propagation(), known), raw, split).choose() == Strengths()


@pytest.fixture
def stored(graphs: Path, tmp_path: Path) -> tuple[Run, TrainedModel]:
    return Run.create(tmp_path / "run", Config(), ""), trained_model(PAPER, Store.open(graphs / "directed"))


def test_they_are_kept_for_the_very_model_and_metric(stored: tuple[Run, TrainedModel]) -> None:
    (run, trained), world, strengths = stored, World(), Strengths(0.5, AUTO, 0.8)
    assert read_strengths(world, run, trained, "accuracy") is None
    write_strengths(world, run, trained, "accuracy", strengths)
    assert read_strengths(world, run, trained, "accuracy") == strengths
    assert read_strengths(world, run, trained, "f1_macro") is None
    assert read_strengths(world, run, replace(trained, fingerprint="another"), "accuracy") is None


def test_altered_ones_are_refused(stored: tuple[Run, TrainedModel]) -> None:
    (run, trained), world = stored, World()
    write_strengths(world, run, trained, "accuracy", Strengths(0.5, 2.0))
    (path,) = (run.path / "smoothing").iterdir()
    flip(path, 100)
    with pytest.raises(CheckpointError, match=r"was altered .*: remove it, and they are chosen anew"):
        read_strengths(world, run, trained, "accuracy")
