"""Smoothing as a part of an evaluation: what is known, chosen, remembered and told."""

from pathlib import Path

import pytest
import torch

from nfdist.config import Config
from nfdist.evaluation.full import FullGraph
from nfdist.evaluation.scores import score
from nfdist.evaluation.smoothed import Smoothed, Subject, smooth_model
from nfdist.evaluation.smoothing import Rows, Strengths
from nfdist.evaluation.strengths import read_strengths, write_strengths
from nfdist.model.loading import TrainedModel
from nfdist.runs.run import Run
from nfdist.store.source_graph import TRAIN, VALID
from nfdist.store.store import Store
from nfdist.world import World
from tests.evaluation.building import LARGE, PAPER, full_graph, write_graph
from tests.evaluation.dense_smoothing import TASKS, known_rows
from tests.evaluation.trained import trained_model

WORLD = World()


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> FullGraph:
    return full_graph(write_graph(tmp_path_factory.mktemp("graph") / "graph", "undirected", 1), PAPER, LARGE)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", Config(), "")


@pytest.fixture
def trained(tmp_path: Path) -> TrainedModel:
    return trained_model(PAPER, Store.open(write_graph(tmp_path / "graph", "undirected", 1)))


def subject(trained: TrainedModel, valid_labels: bool = True) -> Subject:
    known, split = known_rows(TASKS[0], 60)
    labels = known.labels if valid_labels else known.labels.where(split != VALID, -1)
    known = Rows(known.task, known.logits, labels, split == TRAIN)
    return Subject(trained, known, split, score(WORLD, known.task, "accuracy", known.logits, labels, split))


def done(graph: FullGraph, run: Run, of: Subject, remember: bool = True) -> Smoothed:
    smoothed = smooth_model(graph, WORLD, run, of, remember=remember)
    assert smoothed is not None
    return smoothed


def test_it_is_chosen_once_and_remembered(graph: FullGraph, run: Run, trained: TrainedModel) -> None:
    of = subject(trained)
    forgotten = done(graph, run, of, remember=False)
    assert not (run.path / "smoothing").exists()
    chosen = done(graph, run, of)
    assert chosen.strengths == forgotten.strengths == read_strengths(WORLD, run, trained, "accuracy")
    assert torch.equal(chosen.logits, forgotten.logits)
    assert chosen.scores.valid.value is not None
    assert of.raw.valid.value is not None
    assert chosen.scores.valid.value > of.raw.valid.value
    others = Strengths(0.5, 0.5)
    write_strengths(WORLD, run, trained, "accuracy", others)
    assert done(graph, run, of).strengths == others


def test_strengths_of_nothing_leave_raw_answers(graph: FullGraph, run: Run, trained: TrainedModel) -> None:
    of = subject(trained)
    write_strengths(WORLD, run, trained, "accuracy", Strengths())
    smoothed = done(graph, run, of)
    assert smoothed.logits is of.known.logits
    assert smoothed.scores == of.raw
    assert smoothed.facts()["strengths"] == Strengths().facts()


def test_without_validation_labels_there_is_one_line_and_no_smoothing(
    graph: FullGraph, run: Run, trained: TrainedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    assert smooth_model(graph, WORLD, run, subject(trained, valid_labels=False)) is None
    said = "nfdist: no smoothing: the validation nodes have no accuracy to choose its strengths by\n"
    assert capsys.readouterr().err == said
    assert not (run.path / "smoothing").exists()
