"""A small graph on disk and a training of it, alone or as a rank of a test world."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nfdist import settings
from nfdist.collectives import total
from nfdist.config import Config
from nfdist.errors import NfdistError
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.sources import SourceOptions
from nfdist.rendezvous import Place
from nfdist.runs.run import Run
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import Store
from nfdist.training.job import train
from nfdist.training.sampling import Position, Sampler
from nfdist.world import World

SCALE = 0.0001  # of Amazon2M: 245 nodes
SETTINGS: dict[str, dict[str, Any]] = {
    "model": {"layers": 2, "channels": 8, "heads": 2, "random_features": 10, "dropout": 0.5},
    "attention": {"noise_draws": 3, "scope": "world"},
    "relation": {"order": 2, "scope": "world"},
    "train": {"epochs": 2, "batch_nodes": 60, "learning_rate": 0.01, "evaluate_every": 0, "precision": "float64"},
    "observe": {"port": 0},
}


def build_partition(directory: Path, parts: int = 3) -> Path:
    partition(Recipe("amazon2m-like", parts, str(directory), "random", options=SourceOptions(scale=SCALE)))
    return directory


def build_two_classes(folder: Path, *, one_sided: bool = False) -> Path:
    """A graph of two classes in `folder`/two-classes; `one_sided`: all nodes to validate on are of the first."""
    stream = np.random.default_rng(0)
    labels, split = stream.integers(0, 2, 90), np.arange(90) % 3
    if one_sided:
        labels[split == 1] = 0
    rows: dict[str, Any] = {
        f"{name}_idx": np.flatnonzero(split == code) for code, name in enumerate(("train", "valid", "test"))
    }
    features = (stream.standard_normal((90, 12)) + labels[:, None]).astype(np.float32)
    np.savez(folder / "two.npz", edge_index=stream.integers(0, 90, (2, 300)), feat=features, label=labels, **rows)
    partition(
        Recipe.build(str(folder / "two.npz"), {"parts": 2, "out": str(folder / "two-classes"), "method": "random"})
    )
    return folder / "two-classes"


def build_lopsided_partition(directory: Path) -> Path:
    """Three parts, the first of them without a node to train on."""
    whole = build_partition(directory.with_name("whole"), 1)
    store = Store.open(whole)
    by_original = dict(
        zip(store.original_ids(torch.arange(store.num_nodes)), store.split(torch.arange(store.num_nodes)), strict=True)
    )
    numbers = [1 + number % 2 if by_original[number] == TRAIN else 0 for number in range(store.num_nodes)]
    assignment = directory.with_name("assignment.txt")
    assignment.write_text("".join(f"{number}\n" for number in numbers))
    options = SourceOptions(scale=SCALE)
    partition(Recipe("amazon2m-like", 3, str(directory), "file", str(assignment), options=options))
    return directory


def config_of(partition: Path, run: Path, *overrides: str) -> Config:
    return settings.parse(SETTINGS, [f'data.partition="{partition}"', f'run.dir="{run}"', *overrides])


def run_training(world: World, config_text: str, resume: bool = False) -> dict[str, Any] | None:
    """Train as one rank; the configuration travels as text."""
    place = Place(world.rank, world.size, world.rank, world.size)
    result, stopped = train(settings.parse(config_text), place, world, torch.device("cpu"), resume)
    return None if stopped else result


def several(world: World, configs: list[str]) -> None:
    """Train one after the other."""
    for config in configs:
        run_training(world, config)


def refused(world: World, texts: list[str]) -> list[str]:
    """What is said of trainings that all ranks refuse."""
    messages = []
    for text in texts:
        with pytest.raises(NfdistError) as caught:
            run_training(world, text)
        assert caught.value.everywhere
        messages.append(str(caught.value))
    return messages


def cut_short(run: Path, cut: Path, step: int) -> None:
    """What a run's directory would be had it ended right after a step."""
    shutil.copytree(run, cut)
    checkpoints = {int(path.name.removeprefix("step-")): path for path in (cut / "checkpoints/seed-0").glob("step-*")}
    assert step in checkpoints, f"train.keep has left {sorted(checkpoints)} alone"
    for made, path in checkpoints.items():
        if made > step:
            shutil.rmtree(path)


def resumed(world: World, whole: str, cut: str, run: str, step: int) -> None:
    """Train at once, and again from where a copy of it ends."""
    run_training(world, whole)
    if world.rank == 0:
        cut_short(Path(run), Path(settings.parse(cut).run.dir), step)
    total(world, torch.zeros(1))
    run_training(world, cut, resume=True)


def last_weights(run: Path) -> dict[str, Tensor]:
    checkpoint = Run.open(run).last_checkpoint([0])
    assert checkpoint is not None
    return checkpoint.tensors("weights")


def flat_weights(run: Path) -> Tensor:
    return torch.cat([tensor.flatten() for _, tensor in sorted(last_weights(run).items())])


def step_losses(run: Path) -> list[float]:
    return [line["loss"] for line in Run.open(run).metrics() if line["kind"] == "step"]


def epoch(sampler: Sampler, position: Position) -> tuple[list[list[Tensor]], Position]:
    """The batches of all ranks, step by step, until the epoch ends."""
    steps, number = [], position.epoch
    while position.epoch == number:
        batches, position = sampler.take(position)
        steps.append(batches)
    return steps, position
