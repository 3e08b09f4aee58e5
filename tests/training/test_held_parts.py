"""Ranks whose hosts hold only some of the parts train and score as ranks that see the whole partition."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nfdist import settings
from nfdist.config import Config
from nfdist.runs.run import Run
from nfdist.world import World
from tests.comparing import difference
from tests.training.building import build_partition, config_of, flat_weights, several, step_losses
from tests.worlds import run_world

HOLDINGS = {2: [[0, 1], [2]], 3: [[1], [0], [2]]}
BASELINE = ["relation.order=1", "relation.scope=rank", "train.edge_loss=0", "train.epochs=2"]
CASES = {
    "order 2": ["train.batch_nodes=60"],
    "order 3 of each rank": ["relation.order=3", "relation.scope=rank", "attention.scope=rank"],
    "whole graph": ["train.batch_nodes=0", "relation.order=2", "model.graph_layers=1"],
    "walks": ["train.batch_nodes=40", "relation.scope=rank", "train.sampling=walks", "train.walk_length=3"],
    "mixhop": ["model.name=mixhop", *BASELINE],
    "gcn of walks": ["model.name=gcn", *BASELINE, "train.sampling=walks", "train.walk_length=2"],
    "sgc, smoothed": ["model.name=sgc", *BASELINE, "evaluate.smoothing=auto"],
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graph") / "partition")


def config_for(partition: Path, run: Path, name: str) -> Config:
    return config_of(partition, run, "train.evaluate_every=1", "evaluate.smoothing=none", *CASES[name])


def train_all(world: World, whole: Path, folder: Path, names: list[str]) -> None:
    """Every case on the whole partition, and then on hosts of which each has some parts and hops of its own."""
    others = set(range(3)) - set(HOLDINGS[world.size][world.rank])
    own = folder / f"host-{world.rank}" / "partition"
    shutil.copytree(whole, own, ignore=shutil.ignore_patterns(*(f"part-{number:05d}" for number in others)))
    configs = []
    for name in names:
        config = config_for(whole, folder / name / "whole", name)
        held = replace(
            config,
            data=replace(config.data, partition=str(own)),
            run=replace(config.run, dir=str(folder / name / "held")),
        )
        configs += [settings.dump(config), settings.dump(held)]
    several(world, configs)


@pytest.mark.parametrize(
    ("size", "names"),
    [
        (3, ["order 3 of each rank", "whole graph", "gcn of walks"]),
        pytest.param(2, list(CASES), marks=pytest.mark.slow),
        pytest.param(3, list(CASES), marks=pytest.mark.slow),
    ],
    ids=["3, some", "2", "3"],
)
def test_ranks_with_some_parts_each_train_like_ranks_with_all(
    size: int, names: list[str], whole: Path, tmp_path: Path
) -> None:
    run_world(size, train_all, whole, tmp_path, names)
    for name in names:
        held, wanted = tmp_path / name / "held", tmp_path / name / "whole"
        assert len(step_losses(wanted)) >= 2
        assert step_losses(held) == step_losses(wanted), name
        assert torch.equal(flat_weights(held), flat_weights(wanted)), name
        scores, expected = (torch.tensor(scores_of(run), dtype=torch.float64) for run in (held, wanted))
        assert len(scores)
        assert difference(scores, expected) < 1e-9, name
    for rank, parts in enumerate(HOLDINGS[size]):
        kept = tmp_path / f"host-{rank}" / "partition.hops"
        assert sorted(int(path.name[-5:]) for path in kept.glob("order-2/part-*")) == parts


def scores_of(run: Path) -> list[list[float]]:
    lines = [line for line in Run.open(run).metrics() if line["kind"] == "evaluation"]
    return [
        [line[name] for name in ("train", "valid", "test", "train_loss", "valid_loss", "test_loss")] for line in lines
    ]
