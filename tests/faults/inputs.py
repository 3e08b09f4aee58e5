"""Cases of inputs: files of users, damaged or without sense. They carry no checksum, so other answers are allowed."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.faults.commands import COMMANDS, Place, place_for, reference
from tests.faults.damage import CASE_MARK, OTHER, apply, kinds_for
from tests.faults.material import Material
from tests.faults.mutations import MUTATIONS
from tests.faults.rule import Problem, check_ending, left_aside
from tests.faults.serving import Outcome, Server
from tests.needs import HAS_DGL

FAMILY = "input"
# What a source is called in the material, and which of its files the command is given.
SOURCES = {
    "graph.npz": ("graph.npz", ""),
    "sparse.npz": ("sparse.npz", ""),
    "tables": ("tables", ""),
    "csv": ("csv", ""),
    "dgl": ("dgl", "toy.bin"),
    "dgl-parts": ("dgl", "parts/toy.json"),
    "recipe": ("recipe", "recipe.toml"),
    "config": ("", ""),
    "new-words.parquet": ("new-words.parquet", ""),
}
if not HAS_DGL:  # which writes them
    del SOURCES["dgl"], SOURCES["dgl-parts"]


def names(material: Material, server: Server, draw: random.Random, subjects: tuple[str, ...]) -> Iterator[str]:
    """All mutations once, in a random order, mixed with damage to the bytes of every source."""
    possible = [mutation for mutation in MUTATIONS if MUTATIONS[mutation].source in SOURCES]
    mutations, number = draw.sample(possible, len(possible)), 0
    while True:
        for source in SOURCES:
            number += 1
            file = draw.choice(_files(material, source))
            kind = draw.choice([kind for kind in kinds_for(Path(file)) if kind != OTHER])
            yield f"{FAMILY}:{source}:{file}:{kind}:{draw.choice(_commands(source))}:{number}"
            for _ in range(3):
                if mutations:
                    mutation = mutations.pop()
                    source_of = MUTATIONS[mutation].source
                    yield f"{FAMILY}:{source_of}:{mutation}:content:{_commands(source_of)[0]}:0"


def _files(material: Material, source: str) -> list[str]:
    """The files of a source, by their names in its folder; a source that is one file has its own name."""
    if source == "config":
        return ["config.toml"]
    path = material.source(SOURCES[source][0])
    if path.is_file():
        return [path.name]
    files = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
    return [file for file in files if file.startswith("parts/") == (source == "dgl-parts")]


def _commands(source: str) -> list[str]:
    if source == "config":
        return ["train"]
    return ["predict"] if source.startswith("new-") else ["partition", "partition", "plan"]


def run(words: list[str], folder: Path, draw: random.Random, material: Material, server: Server) -> list[Problem]:
    """Give a command an input that something is wrong with."""
    source, file, kind, name, _ = words
    mutation = MUTATIONS[file] if kind == "content" else None
    known = _undamaged(source, name, material, server)
    place, target = _prepare(folder, source, material, server)
    if mutation is not None:
        mutation.change(target)
    else:
        apply(kind, target / file if target.is_dir() else target, draw)
    outcome = server.run([*_words(place, source, name, target), *(mutation.words if mutation else ())], folder)
    problems = check_ending(outcome, known.peak_bytes)
    made = {"partition": "out", "train": "trained", "predict": "out.parquet"}.get(name)
    if outcome.code == 0 and not problems:
        if mutation is not None and mutation.refused:
            problems.append(Problem("accepted", "an input without sense was accepted"))
        if name == "partition":
            problems += check_partition(folder / "out", server, known.peak_bytes)
    elif outcome.code and made and (folder / made).exists():
        problems += check_partition(folder / made, server, known.peak_bytes) if name == "partition" else []
        problems.append(Problem("left", f"{made} is there after a refusal"))
    return problems + left_aside(folder)


def check_partition(out: Path, server: Server, peak_bytes: int) -> list[Problem]:
    """A partition that was written can be opened, and its checksums hold."""
    outcome = server.run(["inspect", str(out), "--verify"], out.parent)
    problems = check_ending(outcome, peak_bytes)
    if outcome.code and not problems:
        problems.append(Problem("wrong", f"the partition written is refused: {outcome.stderr.strip()[-200:]}"))
    return [Problem(problem.rule, f"partition accepted, inspect then: {problem.text}") for problem in problems]


def _undamaged(source: str, name: str, material: Material, server: Server) -> Outcome:
    """How the command ends with the input as it should be."""
    if name in COMMANDS:
        return reference("tables", name, material, server).outcome

    def make() -> Outcome:
        folder = material.folder / "references" / f"{source}-{name}"
        place, target = _prepare(folder, source, material, server)
        outcome = server.run(_words(place, source, name, target), folder)
        assert outcome.code == 0, f"{outcome.words} failed on undamaged material:\n{outcome.stderr}"
        return outcome

    made = material.piece(f"reference {source} {name}", make)
    assert isinstance(made, Outcome)
    return made


def _prepare(folder: Path, source: str, material: Material, server: Server) -> tuple[Place, Path]:
    """A case with a copy of the source."""
    place = place_for(folder, "tables", "predict", material, server)
    assert (folder / CASE_MARK).exists()
    original = Path(place.config) if source == "config" else material.source(SOURCES[source][0])
    target = folder / "input" / ("config.toml" if source == "config" else original.name)
    target.parent.mkdir()
    if original.is_file():
        shutil.copyfile(original, target)
    else:
        shutil.copytree(original, target)
    if source == "recipe":
        recipe = target / "recipe.toml"
        recipe.write_text(recipe.read_text().replace(str(original), str(target)))
    return place, target


def _words(place: Place, source: str, name: str, target: Path) -> list[str]:
    if name == "train":
        return ["train", str(target), f"run.dir={place.folder}/trained", "train.epochs=2", "train.seeds=[0]"]
    if name == "predict":
        out = str(place.folder / "out.parquet")
        return ["predict", str(place["run"]), str(target), "--partition", str(place["graph"]), "--out", out]
    given = [str(target / SOURCES[source][1]) if SOURCES[source][1] else str(target)]
    if source != "recipe":
        given += ["--parts", "2"]
    return [name, *given, *(["--out", str(place.folder / "out")] if name == "partition" else [])]


def sample(material: Material, server: Server, draw: random.Random, count: int) -> list[str]:
    """A few that need no DGL files."""
    chosen = ("label-2^30", "csv-word", "new-twice")
    return [
        f"{FAMILY}:{MUTATIONS[name].source}:{name}:content:{_commands(MUTATIONS[name].source)[0]}:0" for name in chosen
    ]
