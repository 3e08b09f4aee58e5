"""Runs in the format of the day they were made, which later versions must be able to read and continue.

    python -m tests.golden.stored_runs    # make stored/ again, only when the format is meant to change

stored/ holds a partition with its paths of two steps, two runs that SIGTERM stopped in the middle of an epoch, and
expected.json: what the same trainings came to without a stop, and what an evaluation of the stopped ones says.
"""

import contextlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nfdist import settings
from tests.golden.adapter import new_node_logits, stopping_after
from tests.golden.commands import run_command
from tests.golden.facts import Facts, evaluation_facts, flat, training_facts, write_new_nodes
from tests.golden.graphs import dividing, plain
from tests.golden.running import one_thread

STORED = Path(__file__).resolve().parent / "stored"
EXPECTED = "expected.json"
GRAPH = "graph"
STOPPED_AFTER = 4  # of the three steps an epoch has
COMMON = (
    f"data.partition={GRAPH}",
    *("model.channels=4", "model.heads=2", "model.random_features=4", "model.dropout=0.2"),
    *("train.epochs=4", "train.batch_nodes=40", "train.learning_rate=0.02", "train.precision=float64"),
    *("train.schedule=cosine", "train.checkpoint_every=0", "train.keep=1", "observe.port=0", "run.device=cpu"),
)
RUNS = {
    "nodeformer": ("relation.order=2", "attention.noise_draws=2"),
    "idgl": ("model.name=idgl", "relation.order=1", "model.anchors=10", "model.refinements=3"),
}


def evaluated(name: str) -> Facts:
    """What an evaluation of a run in the present folder says, and for NodeFormer a prediction."""
    run = Path(name)
    facts = evaluation_facts(run)
    if name == "nodeformer":
        facts["new node logits"] = flat(new_node_logits(run, write_new_nodes(Path("new.parquet"))))
    return facts


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Be in a folder for the length of a block."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def make(folder: Path) -> None:
    """Fill an empty folder; paths in what it holds are relative to it."""
    expected: dict[str, Any] = {}
    with inside(folder), one_thread():
        np.savez("graph.npz", **plain())  # type: ignore[arg-type]
        run_command("partition", "graph.npz", *dividing(2), "--out", GRAPH)
        for name, own in RUNS.items():
            config = settings.parse({}, [*COMMON, *own, f"run.dir={name}"])
            Path(f"{name}.toml").write_text(settings.dump(config))
            run_command("train", f"{name}.toml")
            expected[name] = {"training": training_facts(Path(name))}
            shutil.rmtree(name)
            with stopping_after(STOPPED_AFTER):
                run_command("train", f"{name}.toml", code=143)
            shutil.copytree(name, f"{name}-stopped")
            expected[name]["evaluation"] = evaluated(name)
            shutil.rmtree(name)
            Path(f"{name}-stopped").rename(name)
            Path(f"{name}.toml").unlink()
        Path(EXPECTED).write_text(json.dumps(expected, indent=0) + "\n")
        for path in (Path("graph.npz"), Path("new.parquet")):
            path.unlink()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        made = Path(folder) / "stored"
        made.mkdir()
        make(made)
        if STORED.exists():
            shutil.rmtree(STORED)
        shutil.copytree(made, STORED)


if __name__ == "__main__":
    main()
