"""A folder as trainings and evaluations leave it: a graph with its hops, a run of two seeds, and what was killed."""

import shutil
import socket
from pathlib import Path

from nfdist import settings
from nfdist.cli.main import main
from nfdist.world import World
from tests.training.building import build_partition, config_of, run_training

SMALL = ("train.precision=float32", "train.checkpoint_every=2", "train.evaluate_every=1", "train.keep=5")
DEAD = 2**22 + 1  # above what a kernel gives to any process


def build_folder(top: Path) -> Path:
    """`top`/graph, `top`/graph.hops and `top`/runs/cora, trained and evaluated."""
    graph = build_partition(top / "graph")
    config = config_of(graph, top / "runs" / "cora", *SMALL, "train.seeds=[1, 0]", "train.epochs=3")
    run_training(World(), settings.dump(config))
    assert main(["evaluate", str(top / "runs" / "cora")]) == 0
    return top


def copied(folder: Path, top: Path) -> Path:
    """A folder of its own for a test that changes it; its configuration still names the first one's graph."""
    return Path(shutil.copytree(folder, top / "copy", symlinks=True))


def leave_aside(folder: Path, process: int = DEAD, host: str | None = None) -> Path:
    """Something half-written, of a process of some host."""
    path = folder / f".thing.tmp-{process}-{host or socket.gethostname()}-0123abcd"
    path.mkdir()
    (path / "half").write_text("half")
    return path


def content(top: Path) -> dict[str, bytes | None]:
    """Every path below a folder with its bytes, but for locks, in which their owners count."""
    paths = [path for path in top.rglob("*") if path.suffix != ".lock"]
    return {str(path.relative_to(top)): path.read_bytes() if path.is_file() else None for path in paths}
