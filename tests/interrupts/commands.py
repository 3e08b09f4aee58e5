"""Every command of nfdist as the sweep interrupts it: the one place to add a command to.

A test fails where COMMANDS of nfdist has one that is missing here.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from nfdist import settings
from nfdist.errors import NfdistError
from nfdist.runs.describe import describe_run
from nfdist.runs.run import Run
from nfdist.store.manifest import Manifest
from nfdist.world import World
from tests.training.building import build_partition, config_of, run_training

SMALL = ("train.precision=float32", "train.checkpoint_every=3", "train.evaluate_every=1", "train.epochs=20")


@dataclass(frozen=True)
class Material:
    """What the commands read, made once; whatever one of them writes to is copied first."""

    folder: Path

    @property
    def graph(self) -> Path:
        return self.folder / "graph"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @staticmethod
    def make(folder: Path) -> "Material":
        material = Material(folder)
        build_partition(material.graph)
        run_training(World(), settings.dump(config_of(material.graph, material.run, *SMALL, "train.epochs=2")))
        command = [sys.executable, "-m", "nfdist", "evaluate", str(material.run)]
        subprocess.run(command, check=True, capture_output=True)
        (folder / "config.toml").write_text(settings.dump(config_of(material.graph, Path("run"), *SMALL)))
        return material


@dataclass(frozen=True)
class Interrupted:
    """A command: its words, in a folder of its own that `prepare` has filled, and what is wrong with what it left."""

    words: Callable[[Material], list[str]]
    prepare: Callable[[Material, Path], None] = lambda material, folder: None
    problems: Callable[[Path], list[str]] = lambda folder: []


def partition_problems(folder: Path) -> list[str]:
    """A partition is whole or absent."""
    if not (folder / "out").exists():
        return []
    try:
        Manifest.read(folder / "out").verify(folder / "out")
    except NfdistError as error:
        return [str(error)]
    return []


def run_problems(folder: Path) -> list[str]:
    """All runs below a folder are without damage, and there is no other folder of a run."""
    found: list[str] = []
    for path in folder.rglob("run.json"):
        try:
            found += describe_run(Run.open(path.parent))["problems"]
        except NfdistError as error:
            found.append(str(error))
    found += [f"{path} is empty" for path in folder.rglob("*") if path.is_dir() and not any(path.iterdir())]
    return found + [f"{path} is held by nobody" for path in folder.rglob("*.lock") if _is_stale(path)]


def table_problems(folder: Path) -> list[str]:
    """Tables can be read."""
    found = []
    for path in folder.rglob("*.parquet"):
        try:
            pq.read_table(path)
        except Exception as error:  # whatever it is, the table is not whole
            found.append(f"{path}: {error}")
    return found


def page_problems(folder: Path) -> list[str]:
    """A page is whole or absent."""
    page = folder / "page.html"
    return [] if not page.exists() or page.read_text().rstrip().endswith("</html>") else [f"{page} is cut short"]


def all_problems(folder: Path) -> list[str]:
    return [*partition_problems(folder), *run_problems(folder), *table_problems(folder)]


def _is_stale(path: Path) -> bool:
    return path.stem in ("train", "evaluate", "follow", "tune", "compare")


def _copy_run(material: Material, folder: Path) -> None:
    shutil.copytree(material.run, folder / "run")


def _write_new_nodes(material: Material, folder: Path) -> None:
    import numpy as np
    import pyarrow as pa

    features = Manifest.read(material.graph).num_features
    rows = np.random.default_rng(0).standard_normal((5, features)).astype(np.float32)
    pq.write_table(pa.table({"id": [f"new-{row}" for row in range(5)], "features": list(rows)}), folder / "new.parquet")


INTERRUPTED = {
    "doctor": Interrupted(lambda material: ["doctor"]),
    "partition": Interrupted(
        lambda material: ["partition", "amazon2m-like", "--scale", "0.01", "--parts", "4", "--out", "out"],
        problems=partition_problems,
    ),
    "plan": Interrupted(lambda material: ["plan", "amazon2m-like", "--scale", "0.01", "--parts", "4"]),
    "inspect": Interrupted(lambda material: ["inspect", str(material.graph), "--verify"]),
    "train": Interrupted(
        lambda material: ["train", str(material.folder / "config.toml"), "run.dir=run"], problems=run_problems
    ),
    "evaluate": Interrupted(lambda material: ["evaluate", "run"], prepare=_copy_run, problems=all_problems),
    "predict": Interrupted(
        lambda material: ["predict", str(material.run), "new.parquet", "--out", "answers.parquet"],
        prepare=_write_new_nodes,
        problems=table_problems,
    ),
    "report": Interrupted(lambda material: ["report", str(material.run), "--out", "page.html"], problems=page_problems),
    "compare": Interrupted(
        lambda material: [
            *("compare", str(material.folder / "config.toml"), "train.epochs=5"),
            *("--models", "mlp,gcn", "--out", "compare"),
        ],
        problems=run_problems,
    ),
    "tune": Interrupted(
        lambda material: [
            *("tune", str(material.folder / "config.toml")),
            *("--trials", "6", "--workers", "2", "--out", "tune"),
        ],
        problems=run_problems,
    ),
    "demo": Interrupted(
        lambda material: ["demo", "--dir", "demo", "--scale", "0.001", "--epochs", "2"], problems=all_problems
    ),
    "runs": Interrupted(lambda material: ["runs", str(material.folder)]),
    "clean": Interrupted(
        lambda material: ["clean", ".", "--what", "checkpoints,states,embeddings", "--yes"],
        prepare=_copy_run,
        problems=all_problems,
    ),
    "completion": Interrupted(lambda material: ["completion", "bash"]),
}
