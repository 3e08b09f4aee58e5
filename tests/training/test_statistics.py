"""Statistics of training nodes are those of their rows, whoever reads them, and of no other node's."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from nfdist import settings
from nfdist.model.loading import load_model
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import Store
from nfdist.training.statistics import feature_statistics
from nfdist.world import World
from tests.store.building import build_graph, write
from tests.training.building import build_partition, config_of, run_training
from tests.worlds import run_world


def statistics(world: World, directory: str) -> tuple[Tensor, Tensor]:
    store = Store.open(Path(directory))
    trained = (store.split(torch.arange(store.num_nodes)) == TRAIN).nonzero()[:, 0]
    return feature_statistics(store, trained, world, nodes_at_once=3)


def lists(world: World, directory: str) -> list[list[float]]:
    """The same as a rank can send."""
    return [part.tolist() for part in statistics(world, directory)]


@pytest.mark.parametrize("kind", ["float32", "float16", "sparse"])
def test_they_are_those_of_the_training_rows_in_every_world(kind: str, tmp_path: Path) -> None:
    graph = build_graph(features=kind)
    write(tmp_path / "graph", graph)
    rows = graph.features.toarray() if kind == "sparse" else graph.features
    rows = rows[graph.split == TRAIN].astype(np.float64)
    for found in [lists(World(), str(tmp_path / "graph")), *run_world(3, lists, str(tmp_path / "graph"))]:
        np.testing.assert_allclose(found[0], rows.mean(0), atol=1e-12)
        deviation = np.full(5, np.sqrt(rows.var(0).mean())) if kind == "sparse" else rows.std(0)
        np.testing.assert_allclose(found[1], deviation, atol=1e-12)


def test_a_feature_that_varies_only_elsewhere_has_no_deviation(tmp_path: Path) -> None:
    graph = build_graph()
    graph.features[graph.split == TRAIN, 2] = 1234.567
    write(tmp_path / "graph", graph)
    _, deviation = statistics(World(), str(tmp_path / "graph"))
    assert (deviation == 0).tolist() == [False, False, True, False, False]


def test_they_are_in_the_checkpoint_and_stay_as_they_were(tmp_path: Path) -> None:
    graph, run = build_partition(tmp_path / "graph"), tmp_path / "run"
    store = Store.open(graph)
    config = config_of(graph, run, "train.evaluate_every=1")
    run_training(World(), settings.dump(config))
    trained = (store.split(torch.arange(store.num_nodes)) == TRAIN).nonzero()[:, 0]
    mean, deviation = feature_statistics(store, trained, World())
    kept = load_model(run).model.input
    assert torch.equal(kept.center, mean)
    assert torch.equal(kept.scale, 1 / deviation)
