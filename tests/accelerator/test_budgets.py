"""What a training step asks of a device, whatever the size of its batch: launches of kernels, and waits of the host."""

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from nfdist import settings
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.sources import SourceOptions
from nfdist.rendezvous import Place
from nfdist.training.job import train
from nfdist.world import World
from tests.accelerator.counts import Asked, Counts, counted
from tests.accelerator.device import accelerator, needs_counts

pytestmark = pytest.mark.accelerator

MOST_LAUNCHES = 730
MOST_SYNCS = 2
MOST_SYNCS_OF_ATTENTION = 18
NODES_OF_AMAZON2M = 2_449_029
SETTINGS = {
    "model": {"layers": 2, "channels": 64, "heads": 1, "random_features": 50, "dropout": 0.2},
    "attention": {"noise_draws": 5},
    "relation": {"order": 1},
    "train": {"edge_loss": 0.01, "evaluate_every": 0},
    "observe": {"port": 0},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs_counts()
    return tmp_path_factory.mktemp("budgets")


@cache
def step(folder: Path, num_nodes: int) -> Counts:
    """What one step of so many nodes asks for: what a training of two steps does more than one of a single step."""
    graph = folder / f"graph-{num_nodes}"
    scale = SourceOptions(scale=num_nodes / NODES_OF_AMAZON2M)
    partition(Recipe("amazon2m-like", 1, str(graph), "random", options=scale))
    several = []
    for steps in (1, 2):
        batches = [f"train.batch_nodes={num_nodes}", f"train.epochs={steps}"]
        places = [f'data.partition="{graph}"', f'run.dir="{folder}/run-{num_nodes}-{steps}"']
        with counted() as counts:
            train(settings.parse(SETTINGS, [*places, *batches]), Place(), World(), accelerator(), resume=False)
        several.append(counts.of_thread())
    return several[1] - several[0]


def test_launches_do_not_grow_with_the_batch(folder: Path) -> None:
    small, large = step(folder, 2_000), step(folder, 4_000)
    assert small.launches == large.launches
    assert small.launches.total() <= MOST_LAUNCHES, small.table("launches")


def test_the_host_waits_for_a_step_once(folder: Path) -> None:
    syncs = step(folder, 2_000).syncs
    assert syncs == step(folder, 4_000).syncs
    own: Counter[Asked] = Counter({asked: count for asked, count in syncs.items() if "attention/" not in asked.line})
    assert own.total() <= MOST_SYNCS, step(folder, 2_000).table("syncs")
    assert syncs.total() - own.total() <= MOST_SYNCS_OF_ATTENTION, step(folder, 2_000).table("syncs")
