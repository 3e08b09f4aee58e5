"""The commands that are run on damaged trees: their words, which trees they read, and what they answer."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults import answers
from tests.faults.damage import CASE_MARK
from tests.faults.material import SUBJECTS, Material, Reference
from tests.faults.serving import Outcome, Server


@dataclass
class Place:
    """Where a command finds its trees: in the material, unless this case has a copy of its own."""

    folder: Path
    subject: str
    material: Material
    server: Server
    copied: set[str] = field(default_factory=set)
    metrics_matter: bool = True

    def __getitem__(self, tree: str) -> Path:
        if tree in self.copied:
            return self.folder / tree
        return self.material.tree(self.server, self.subject, tree)

    @property
    def config(self) -> str:
        return str(self.material.config(self.server, self.subject))

    @property
    def new_nodes(self) -> str:
        return str(self.material.new_nodes(self.subject))

    def copy(self, tree: str) -> Path:
        """A copy of a tree that may be damaged or written to; hops lie beside their partition."""
        for name in ("graph", "graph.hops") if tree.startswith("graph") else (tree,):
            original = self.material.tree(self.server, self.subject, name)
            if name not in self.copied and original.exists():
                shutil.copytree(original, self.folder / name)
                self.copied.add(name)
        return self.folder / tree


@dataclass(frozen=True)
class Command:
    """`words` and `answer` are of a place; `reads` are the trees whose damage matters, `writes` those it changes."""

    words: Callable[[Place], list[str]]
    answer: Callable[[Place, Outcome], Any]
    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()
    outputs: Callable[[Place], dict[str, str]] = lambda place: {}
    makes: str = ""  # what is absent before and whole or absent after


def _graph_words(command: str, *more: str) -> Callable[[Place], list[str]]:
    return lambda place: [command, str(place["graph"]), "--json", *more]


def _run_words(command: str, *more: str, made: str = "") -> Callable[[Place], list[str]]:
    def words(place: Place) -> list[str]:
        nodes = [place.new_nodes, "--out", str(place.folder / made)] if made else []
        return [command, str(place["run"]), *nodes, "--partition", str(place["graph"]), "--json", *more]

    return words


def _train_words(place: Place, *more: str) -> list[str]:
    return ["train", place.config, f"data.partition={place['graph']}", *more]


def _facts(place: Place, outcome: Outcome) -> Any:
    return answers.timeless(outcome.result)


def _run_facts(place: Place, outcome: Outcome) -> Any:
    facts = answers.timeless(outcome.result) or {}
    return {key: value for key, value in facts.items() if place.metrics_matter or key != "metrics_lines"}


def _trained(tree: str) -> Callable[[Place, Outcome], Any]:
    return lambda place, outcome: answers.training(place.folder / tree, place.metrics_matter)


def _evaluated(place: Place, outcome: Outcome) -> Any:
    return {"scores": _facts(place, outcome), **answers.evaluation_files(place["run"])}


def _predicted(place: Place, outcome: Outcome) -> Any:
    return {"table": answers.table(place.folder / "out.parquet"), **(_facts(place, outcome) or {})}


COMMANDS = {
    "inspect": Command(_graph_words("inspect"), _facts, ("graph",)),
    "verify": Command(_graph_words("inspect", "--verify"), _facts, ("graph",)),
    "train": Command(
        lambda place: _train_words(place, f"run.dir={place.folder}/trained"),
        _trained("trained"),
        ("graph", "graph.hops"),
        makes="trained",
    ),
    "resume": Command(
        lambda place: _train_words(place, f"run.dir={place['interrupted']}", "--resume"),
        _trained("interrupted"),
        ("graph", "graph.hops", "interrupted"),
        writes=("interrupted",),
    ),
    "warm": Command(
        lambda place: _train_words(place, f"run.dir={place.folder}/trained", f"train.init_from={place['run']}"),
        _trained("trained"),
        ("run",),
        makes="trained",
    ),
    "evaluate": Command(
        _run_words("evaluate"),
        _evaluated,
        ("graph", "graph.hops", "run"),
        writes=("run",),
        outputs=lambda place: answers.evaluation_files(place["run"]),
    ),
    "score": Command(_run_words("evaluate", "--no-outputs", "--no-states"), _facts, ("graph", "graph.hops", "run")),
    "predict": Command(_run_words("predict", made="out.parquet"), _predicted, ("graph", "run"), makes="out.parquet"),
    "inspect-run": Command(lambda place: ["inspect", str(place["run"]), "--json"], _run_facts, ("run",)),
    "inspect-interrupted": Command(
        lambda place: ["inspect", str(place["interrupted"]), "--json"], _run_facts, ("interrupted",)
    ),
}


def place_for(folder: Path, subject: str, command: str, material: Material, server: Server) -> Place:
    """An empty folder in which a command finds everything undamaged, with copies of what it writes."""
    folder.mkdir(parents=True)
    (folder / CASE_MARK).touch()
    place = Place(folder, subject, material, server)
    for tree in COMMANDS[command].writes:
        place.copy(tree)
    return place


def reference(subject: str, command: str, material: Material, server: Server) -> Reference:
    """What a command answers on undamaged trees, found out once."""

    def make() -> Reference:
        folder = material.folder / "references" / f"{subject}-{command}"
        place = place_for(folder, subject, command, material, server)
        outcome = server.run(COMMANDS[command].words(place), folder)
        assert outcome.code == 0, f"{outcome.words} failed on undamaged material:\n{outcome.stderr}"
        return Reference(COMMANDS[command].answer(place, outcome), outcome)

    made = material.piece(f"reference {subject} {command}", make)
    assert isinstance(made, Reference)
    return made


def applicable(subject: str) -> list[str]:
    """The commands that make sense for a subject."""
    return [name for name in COMMANDS if SUBJECTS[subject].predicts or name != "predict"]
