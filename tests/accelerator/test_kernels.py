"""A training step by the Triton kernels, interpreted for the fake accelerator: its launches, and its results."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from torch import Tensor

pytest.importorskip("triton", reason="triton is not installed: pip install nfdist[gpu]")

from nfdist import settings
from nfdist.attention import ops
from nfdist.attention.ops.triton_kernels.launch import launch
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.sources import SourceOptions
from nfdist.rendezvous import Place
from nfdist.training.job import train
from nfdist.world import World
from tests.accelerator import fake
from tests.accelerator.counts import Counts, counted
from tests.accelerator.device import accelerator, needs_counts
from tests.attention.ops.triton_kernels.running import KERNELS

pytestmark = pytest.mark.accelerator

MOST_LAUNCHES, MOST_SYNCS = 350, 2
NODES_OF_AMAZON2M = 2_449_029
SETTINGS = {
    "model": {"layers": 2, "channels": 4, "heads": 1, "random_features": 5, "dropout": 0.2},
    "attention": {"noise_draws": 2},
    "relation": {"order": 1},
    "train": {"edge_loss": 0.01, "evaluate_every": 0},
    "observe": {"port": 0},
}
MODULES = ("attention", "edges", "epilogue", "features", "noise", "summaries")


def interpret(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """A launch on the fake accelerator: one operation, on the memory of its tensors."""
    assert all(isinstance(one, fake.FakeTensor) for one in arguments if isinstance(one, Tensor)), "left on the CPU"
    if 0 in grid:
        return
    values = tuple(fake.host(one) if isinstance(one, Tensor) else one for one in arguments)
    launch(kernel, grid, *values, **constants)
    call = SimpleNamespace(__name__=kernel.__name__, _schema=SimpleNamespace(returns=[]), _overloadpacket=None)
    for observer in list(fake.observers):
        observer(fake.Operation(call, "kernel", values, {}, None))


@contextmanager
def kernels() -> Iterator[None]:
    with ExitStack() as stack:
        for name in MODULES:
            stack.enter_context(patch(f"nfdist.attention.ops.triton_kernels.{name}.launch", interpret))
        stack.enter_context(patch.dict(ops.IMPLEMENTATIONS, {fake.TYPE: KERNELS}))
        yield


def step(folder: Path, num_nodes: int) -> Counts:
    graph = folder / f"graph-{num_nodes}"
    partition(
        Recipe("amazon2m-like", 1, str(graph), "random", options=SourceOptions(scale=num_nodes / NODES_OF_AMAZON2M))
    )
    several = []
    for steps in (1, 2):
        batches = [f"train.batch_nodes={num_nodes}", f"train.epochs={steps}"]
        places = [f'data.partition="{graph}"', f'run.dir="{folder}/run-{num_nodes}-{steps}"']
        with counted() as counts, kernels():
            train(settings.parse(SETTINGS, [*places, *batches]), Place(), World(), accelerator(), resume=False)
        several.append(counts.of_thread())
    return several[1] - several[0]


def test_a_step_by_kernels_keeps_its_budget(tmp_path: Path) -> None:
    needs_counts()
    asked = step(tmp_path, 24)
    assert asked.launches.total() <= MOST_LAUNCHES, asked.table("launches")
    assert asked.syncs.total() <= MOST_SYNCS, asked.table("syncs")
