"""A small graph whose test labels may be poisoned, and studies of it."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nfdist import settings
from nfdist.api import partition
from nfdist.config import Config
from nfdist.rendezvous import Place
from nfdist.tune.purpose import Purpose
from nfdist.tune.search import Limits, search
from nfdist.tune.study import Study, owned_study
from nfdist.tune.study_files import write_outputs
from nfdist.world import World

SETTINGS: dict[str, dict[str, Any]] = {
    "model": {"channels": 4, "heads": 1, "random_features": 5},
    "attention": {"noise_draws": 1},
    "relation": {"order": 1},
    "train": {"epochs": 3, "learning_rate": 0.01, "edge_loss": 0.0, "seeds": [0, 1]},
    "observe": {"port": 0},
}
SEARCH: dict[str, Any] = {
    "train.learning_rate": {"low": 1e-3, "high": 0.1, "log": True},
    "model.dropout": [0.0, 0.3],
}
FAR_AWAY = 3600.0


def build_graph(folder: Path, poisoned: bool = False) -> Path:
    """Sixty nodes of three classes, a third of them each to train, validate and test on."""
    stream = np.random.default_rng(0)
    labels = stream.integers(0, 3, 60)
    features = (np.eye(3)[labels] + stream.normal(0, 0.8, (60, 3))).astype(np.float32)
    edges = stream.integers(0, 60, (2, 150))
    train, valid, test = np.split(stream.permutation(60), 3)
    if poisoned:
        labels[test] = (labels[test] + 1) % 3
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {"train_idx": train, "valid_idx": valid, "test_idx": test, "edge_index": edges}
    np.savez(folder / "graph.npz", feat=features, label=labels, **arrays)  # type: ignore[arg-type]
    partition(folder / "graph.npz", folder / "graph", parts=1, method="random")
    return folder / "graph"


def config_of(graph: Path, *overrides: str) -> Config:
    return settings.parse(SETTINGS, [f'data.partition="{graph}"', *overrides])


def purpose_of(graph: Path, *overrides: str, search: dict[str, Any] | None = None) -> Purpose:
    return Purpose.of(config_of(graph, *overrides), SEARCH if search is None else search, ())


def run_study(purpose: Purpose, folder: Path, trials: int, seconds: float = FAR_AWAY) -> dict[str, Any]:
    """Make trials until there are so many, alone; what the study came to."""
    with owned_study(folder, purpose) as study:
        limits = Limits(trials, time.monotonic() + seconds)
        assert search(purpose.config, study, Place(), World(), torch.device("cpu"), limits) is None
        return write_outputs(study, purpose.config)


def search_as_rank(world: World, config_text: str, folder: str, trials: int) -> str:
    """Make trials as one of several ranks; every trial as text."""
    purpose = Purpose.of(settings.parse(config_text), SEARCH, ())
    place, limits = Place(world.rank, world.size, world.rank, world.size), Limits(trials, time.monotonic() + FAR_AWAY)
    if world.rank:
        search(purpose.config, None, place, world, torch.device("cpu"), limits)
        return ""
    with owned_study(Path(folder), purpose) as study:
        search(purpose.config, study, place, world, torch.device("cpu"), limits)
        return json.dumps(facts(study))


def facts(study: Study) -> list[Any]:
    """What the trials that count came to, without their numbers and times."""
    trials = [one for one in study.trials() if one.state != "interrupted"]
    return [[one.state, dict(one.values), one.score, one.last] for one in trials]


def facts_of(folder: Path) -> list[Any]:
    return facts(Study(folder, Purpose.read(folder)))
