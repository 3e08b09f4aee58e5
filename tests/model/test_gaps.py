"""Gaps are filled with the means of training nodes, the same in training, evaluation and prediction."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nfdist import settings
from nfdist.config import Config, DataConfig, ModelConfig, RelationConfig
from nfdist.graph.relation import build_relations
from nfdist.graph.split import split_of
from nfdist.model.build import MODELS, build_model
from nfdist.model.gaps import FEATURE_MEANS, fill_gaps
from nfdist.model.loading import load_model
from nfdist.model.protocol import Draw
from nfdist.runs.run import Run
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.distributed import DistributedStore
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import GraphStore, Store
from nfdist.training.statistics import feature_statistics, set_constants
from nfdist.world import World
from tests import tables
from tests.needs import MODELS_LEFT_OUT
from tests.training.building import run_training
from tests.worlds import run_world

SETTINGS = {
    "model": {"layers": 2, "channels": 8, "random_features": 10},
    "train": {"epochs": 2, "batch_nodes": 40, "learning_rate": 0.01},
    "observe": {"port": 0},
}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The machines with their notes, whose features are sparse, and without."""
    folder = tmp_path_factory.mktemp("gaps")
    tables.build(tables.save(folder / "all", tables.machines()), folder / "sparse")
    tables.build(tables.save(folder / "some", tables.machines().drop(columns="note")), folder / "dense")
    return folder


def config_of(graph: Path, run: Path, *overrides: str) -> Config:
    return settings.parse(SETTINGS, [f'data.partition="{graph}"', f'run.dir="{run}"', *overrides])


def dense_statistics(store: Store, split: torch.Tensor) -> Any:
    """The definition: numpy's means and deviations of what is there."""
    rows = store.take((split == TRAIN).nonzero()[:, 0]).to_dense().double().numpy()
    means, deviations = np.nanmean(rows, axis=0), np.nanstd(rows, axis=0)
    if store.manifest.feature_kind == "sparse":  # words and categories of a column have one deviation
        for column, features in store.manifest.schema.slices():
            if column.encoding not in ("number", "boolean"):
                varies = deviations[features] > 0
                deviations[features] = np.where(varies, np.sqrt((deviations[features] ** 2).mean()), 0)
    return np.stack([means, deviations])


def dense_means(store: Store, split: torch.Tensor) -> Any:
    """What gaps are filled with."""
    means, gaps = np.zeros(store.num_features), store.manifest.schema.gap_features
    means[gaps] = dense_statistics(store, split)[0][gaps]
    return means


def statistics(world: World, store: GraphStore, split: torch.Tensor) -> list[list[float]]:
    return [values.tolist() for values in feature_statistics(store, (split == TRAIN).nonzero()[:, 0], world, 7)]


def means_of(world: World, graphs: str) -> list[list[float]]:
    """The means of both graphs, with all parts and, in a world of two, with a part each."""
    found = []
    for kind in ("dense", "sparse"):
        for remote in (False, world.size > 1):
            store = Store.open(f"{graphs}/{kind}", [world.rank] if remote else None)
            seen = DistributedStore(store, world) if remote else store
            found += statistics(world, seen, split_of(seen, DataConfig(f"{graphs}/{kind}"), 3))
    return found


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("drawn", ["stored", "random:0.3/0.3/0.4"])
def test_means_are_those_of_the_training_nodes_of_the_split_in_use(graphs: Path, kind: str, drawn: str) -> None:
    store = Store.open(graphs / kind)
    assert store.manifest.feature_kind == kind
    split = split_of(store, DataConfig(str(graphs / kind), split=drawn), 3)
    found = statistics(World(), store, split)
    assert np.abs(np.subtract(found, dense_statistics(store, split))).max() < 1e-12
    assert np.abs(np.array(found)[0, store.manifest.schema.gap_features]).min() > 0


def test_ranks_find_the_same_means_with_all_parts_or_their_own(graphs: Path) -> None:
    alone = means_of(World(), str(graphs))
    for found in run_world(2, means_of, str(graphs)):
        for mine, wanted in zip(found, alone, strict=True):
            assert np.abs(np.subtract(mine, wanted)).max() < 1e-14


def test_filling_touches_gaps_alone_and_nothing_where_there_are_none() -> None:
    rows, means = torch.tensor([[1.0, 0.0, float("nan")], [float("nan"), 2.0, 3.0]]), torch.tensor([7.0, 8.0, 9.0])
    wanted = torch.tensor([[1.0, 0.0, 9.0], [7.0, 2.0, 3.0]])
    assert torch.equal(fill_gaps(rows, means), wanted)
    assert torch.equal(fill_gaps(rows.to_sparse_csr(), means).to_dense(), wanted)
    for whole in (wanted, wanted.to_sparse_csr()):
        assert fill_gaps(whole, means) is whole
    assert fill_gaps(rows, None) is rows


@pytest.mark.parametrize("name", sorted(MODELS.keys() - MODELS_LEFT_OUT))
def test_every_model_answers_for_gaps_as_for_the_means_in_their_place(name: str) -> None:
    stream = torch.Generator().manual_seed(0)
    features = torch.randn(30, 5, generator=stream)
    broken = features.clone()
    broken[torch.rand(30, 5, generator=stream) < 0.3] = float("nan")
    means = torch.randn(5, generator=stream)
    config = Config(model=_model(name), relation=RelationConfig(order=1))
    model = build_model(config, 5, 3, seed=1, num_nodes=30).eval()
    model.feature_means = means
    model.input.set_statistics(means.double(), torch.ones(5).double())
    ends = torch.randint(30, (2, 90), generator=stream)
    relations = build_relations(Adjacency.from_edges(ends[0], ends[1], 30).symmetrized(), 1)
    draw = Draw(0, 0, torch.arange(30))
    answers = [model(rows, relations, draw).logits for rows in (broken, fill_gaps(broken, means))]
    assert torch.equal(*answers)
    assert torch.isfinite(answers[0]).all()


def _model(name: str) -> ModelConfig:
    extra = "model.dropedge.edge_dropout=0.5" if name == "dropedge" else "model.layers=2"
    return settings.parse({}, [f"model.name={name}", "model.layers=2", "model.channels=8", extra]).model


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_means_are_among_the_weights_and_follow_a_redrawn_split(graphs: Path, kind: str, tmp_path: Path) -> None:
    found = {}
    for drawn in ("stored", "random:0.4/0.3/0.3"):
        run = tmp_path / drawn.replace("/", "-")
        run_training(World(), settings.dump(config_of(graphs / kind, run, f'data.split="{drawn}"')))
        model = load_model(run).model
        store = Store.open(graphs / kind)
        split = split_of(store, DataConfig(str(graphs / kind), split=drawn), 0)
        assert model.feature_means is not None
        assert np.abs(model.feature_means.numpy() - dense_means(store, split)).max() < 1e-5
        assert FEATURE_MEANS in model.state_dict()
        found[drawn] = model.feature_means
    assert not torch.equal(*found.values())


def test_a_run_goes_on_with_its_means_and_weights_bring_theirs_along(graphs: Path, tmp_path: Path) -> None:
    whole, part = (config_of(graphs / "dense", tmp_path / name) for name in ("whole", "part"))
    run_training(World(), settings.dump(whole))
    run_training(World(), settings.dump(part).replace("epochs = 2", "epochs = 1"))
    run_training(World(), settings.dump(part), resume=True)
    newest = [max(Run.open(tmp_path / name).checkpoint_paths(0).items())[1] for name in ("whole", "part")]
    weights = [load_model(path.parents[2], path).model.state_dict() for path in newest]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    start = f'train.init_from="{tmp_path / "whole"}"'
    other = config_of(graphs / "dense", tmp_path / "other", start, 'data.split="random:0.2/0.4/0.4"', "train.epochs=1")
    run_training(World(), settings.dump(other))
    means = load_model(tmp_path / "other").model.feature_means
    assert means is not None
    assert torch.equal(means, weights[0][FEATURE_MEANS])  # by which these weights were trained


def test_features_without_names_have_no_means(tmp_path: Path) -> None:
    nodes = tables.machines()
    listed = nodes[["machine", "condition"]].assign(features=nodes["spectrum"])
    store = tables.build(tables.save(tmp_path / "tables", listed), tmp_path / "graph")
    model = build_model(Config(model=_model("mlp"), relation=RelationConfig(order=1)), store.num_features, 3)
    set_constants(model, store, store.split(torch.arange(store.num_nodes)), World(), scaled=True)
    assert model.feature_means is None
