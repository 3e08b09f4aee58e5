"""Material: graphs, runs and what undamaged commands answer; each piece is made once, when it is first needed."""

import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults import sources
from tests.faults.serving import Outcome, Server

CONFIG = """\
[data]
partition = "{graph}"
[model]
{model}
[attention]
noise_draws = 2
temperature = {temperature}
[relation]
order = {order}
[train]
epochs = 2
batch_nodes = {batch_nodes}
learning_rate = {learning_rate}
edge_loss = {edge_loss}
seeds = [0, 1]
checkpoint_every = 1
keep = {keep}
[observe]
port = 0
"""
NODEFORMER = "layers = 2\nchannels = 8\nheads = 2\nrandom_features = 8\ndropout = 0.5"
GCN = 'name = "gcn"\nlayers = 2\nchannels = 8'
INTERRUPTED_AFTER = 2  # steps of the second seed, before its first evaluation


@dataclass(frozen=True)
class Subject:
    """A graph, and how a model is trained on it; `division` are the words of nfdist partition."""

    name: str
    write: Callable[[Path], Path]
    file: str
    division: tuple[str, ...]
    model: str = NODEFORMER
    order: int = 2
    edge_loss: float = 0.1
    batch_nodes: int = 100
    ids: str = "words"

    @property
    def predicts(self) -> bool:
        return self.model is NODEFORMER


SUBJECTS = {
    subject.name: subject
    for subject in (
        Subject("tables", sources.write_tables, "tables", ("--parts", "3", "--method", "random")),
        Subject("sparse", sources.write_sparse, "sparse.npz", ("--parts", "2"), GCN, 1, 0.0, 90, "numbers"),
        Subject(
            "wide",
            sources.write_wide,
            "wide.npz",
            ("--parts", "2", "--method", "random"),
            batch_nodes=450,
            ids="numbers",
        ),
    )
}


@dataclass(frozen=True)
class Reference:
    """What the undamaged command answered, held and took."""

    answer: Any
    outcome: Outcome


class Material:
    """All pieces are in one folder, by the code under test; a lock lets one thread at a time make what is missing."""

    def __init__(self, folder: Path, code: Path) -> None:
        self.folder, self.code = folder, code
        self._made: dict[str, Any] = {}
        self._lock = threading.RLock()
        folder.mkdir(parents=True, exist_ok=True)

    def piece(self, name: str, make: Callable[[], Any]) -> Any:
        """The piece of a name, made on first use."""
        with self._lock:
            if name not in self._made:
                self._made[name] = make()
            return self._made[name]

    def source(self, name: str) -> Path:
        """A source, or a file of new nodes, as nobody has damaged it."""
        writers: dict[str, Callable[[Path], Path]] = {
            **{subject.file: subject.write for subject in SUBJECTS.values()},
            "graph.npz": sources.write_npz,
            "csv": sources.write_csv,
            "dgl": lambda folder: sources.write_dgl(folder, self.code),
            "recipe": sources.write_recipe,
            "new-words.parquet": sources.write_new_nodes,
            "new-numbers.parquet": lambda path: _write_wide_new_nodes(path),
        }
        folder = self.folder / "sources"
        folder.mkdir(exist_ok=True)
        return Path(self.piece(f"source {name}", lambda: writers[name](folder / name)))

    def graph(self, server: Server, name: str, other: bool = False) -> Path:
        """The partition of a subject, or another division of the same graph."""
        subject = SUBJECTS[name]
        out = self.folder / ("others" if other else "") / name / "graph"
        words = ["partition", str(self.source(subject.file)), *subject.division, "--out", str(out)]

        def make() -> Path:
            _succeed(server, [*words, "--seed", "5" if other else "0"], self.folder)
            return out

        return Path(self.piece(f"graph {name} {other}", make))

    def config(self, server: Server, name: str, other: bool = False, keep: int = 2) -> Path:
        """The TOML file of a training; run.dir is up to the command."""
        subject = SUBJECTS[name]
        text = CONFIG.format(
            graph=self.graph(server, name),
            learning_rate=0.02 if other else 0.01,
            temperature=0.5 if other else 0.25,
            keep=keep,
            **{key: getattr(subject, key) for key in ("model", "order", "batch_nodes", "edge_loss")},
        )
        path = self.folder / f"{name}-{'other' if other else 'usual'}-{keep}.toml"
        path.write_text(text)
        return path

    def run(self, server: Server, name: str, other: bool = False) -> Path:
        """A finished and evaluated run of a subject, or one trained at another rate and temperature."""
        out = self.folder / ("others" if other else "") / name / "run"

        def make() -> Path:
            _succeed(server, ["train", str(self.config(server, name, other)), f"run.dir={out}"], self.folder)
            _succeed(server, ["evaluate", str(out)], self.folder)
            return out

        return Path(self.piece(f"run {name} {other}", make))

    def interrupted(self, server: Server, name: str, other: bool = False) -> Path:
        """A run as `kill -9` leaves it in its second seed: what came later is taken away again."""
        out = self.folder / ("others" if other else "") / name / "interrupted"

        def make() -> Path:
            config = self.config(server, name, other, keep=1000)
            _succeed(server, ["train", str(config), f"run.dir={out}"], self.folder)
            for checkpoint in (out / "checkpoints" / "seed-1").glob("step-*"):
                if int(checkpoint.name.removeprefix("step-")) > INTERRUPTED_AFTER:
                    shutil.rmtree(checkpoint)
            (out / "checkpoints" / "seed-1" / "best.json").unlink()
            (out / "result.json").unlink()
            return out

        return Path(self.piece(f"interrupted {name} {other}", make))

    def new_nodes(self, name: str) -> Path:
        return self.source(f"new-{SUBJECTS[name].ids}.parquet")

    def tree(self, server: Server, name: str, tree: str, other: bool = False) -> Path:
        """One of a subject's trees: graph, graph.hops, run or interrupted."""
        if tree == "graph":
            return self.graph(server, name, other)
        if tree == "graph.hops":  # which the first training has made
            if other:
                return self.tree(server, "wide" if name == "tables" else "tables", tree)
            return self.run(server, name).with_name(tree)
        return self.run(server, name, other) if tree == "run" else self.interrupted(server, name, other)


def _succeed(server: Server, words: list[str], folder: Path) -> None:
    outcome = server.run(words, folder)
    assert outcome.code == 0, f"{words} failed on undamaged material:\n{outcome.stderr}"


def _write_wide_new_nodes(path: Path) -> Path:
    import pyarrow.parquet as pq

    pq.write_table(sources.new_nodes("numbers", sources.WIDE_FEATURES), path)
    return path
