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
from nfdist.graph.split import has_label
from nfdist.model.loading import TrainedModel
from nfdist.runs.run import Run
from nfdist.store.source_graph import VALID
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
    found = max([Strengths(), *smoothed[:middle], *corrections, *smoothed[middle:]], key=value)
    if METRICS[known.task.kind] == "accuracy" or not found.any:
        return found
    valid = (split == VALID) & has_label(known.labels)
    return replace(found, shifts=yes_shifts(known, dense_smooth(edges, known, found), valid))


def yes_shifts(known: Rows, smoothed: Tensor, valid: Tensor) -> tuple[float, ...]:
    """From the middle between the last answer of yes and the first of no, if as many say yes as before."""
    margins = [one if known.task.kind == "multi" else one[:, 1:] - one[:, :1] for one in (known.logits, smoothed)]
    found = []
    for raw, column in zip(*(one[valid].T for one in margins), strict=True):
        ascending, no = column.sort().values, int((raw <= 0).sum())
        found.append(-float(ascending[max(no - 1, 0) : no + 1].mean()))
    return tuple(found)


def assert_alike(found: Strengths, wanted: Strengths) -> None:
    """The same but for the rounding of shifts."""
    assert replace(found, shifts=()) == replace(wanted, shifts=())
    assert found.shifts == pytest.approx(wanted.shifts, rel=1e-9)


@pytest.mark.parametrize("size", [1, 2])
def test_they_are_those_of_the_dense_definition(size: int, graphs: Path) -> None:
    by_rank = run_world(size, chosen, graphs) if size > 1 else [chosen(World(), graphs)]
    wanted = []
    for task in TASKS:
        for kind in ("directed", "undirected"):
            wanted.append(by_definition(normalized_edges(Store.open(graphs / kind)), *known_rows(task, 60)))
    assert any(strengths.any for strengths in wanted)  # so that something was chosen
    assert any(strengths.shifts for strengths in wanted)
    for found in by_rank:
        for one, other in zip(found, wanted, strict=True):
            assert_alike(one, other)
    assert by_rank == [by_rank[0]] * size


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
    (run, trained), world, strengths = stored, World(), Strengths(0.5, AUTO, 0.8, shifts=(0.25, -3.0))
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
    with pytest.raises(
        CheckpointError, match=r"was altered .*: remove it, and the strengths of smoothing are chosen anew"
    ):
        read_strengths(world, run, trained, "accuracy")
