"""Cases of damage: a file of a partition, of hops or of a run, a kind of damage, and a command that meets it."""

import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults import answers
from tests.faults.commands import COMMANDS, Command, Place, applicable, place_for, reference
from tests.faults.damage import BYTES, JSON, MANIFEST, TEXT, apply, kinds_for
from tests.faults.material import SUBJECTS, Material, Reference
from tests.faults.rule import Problem, check_ending, left_aside
from tests.faults.serving import Outcome, Server

FAMILY = "damage"
TREES = ("graph", "graph.hops", "run", "interrupted")
SHARES = {"tables": 6, "wide": 2, "sparse": 2}
# What only an evaluation touches, to replace it, and a report reads.
NOT_READ = ("predictions.parquet", "embeddings.parquet", "evaluation.json")
QUICK = ("inspect", "verify", "evaluate", "score", "predict", "inspect-run")
OPTIONAL = ("result.json", "metrics.jsonl", "best.json")  # a run may not have them yet, and then says so


def names(material: Material, server: Server, draw: random.Random, subjects: tuple[str, ...]) -> Iterator[str]:
    """Names of cases without end: each file and each kind of damage in turn, the commands at random."""
    cycles = {subject: _cycle(material, server, subject, draw) for subject in subjects}
    shares = [SHARES[subject] for subject in cycles]
    numbers: dict[str, int] = {}
    while True:
        name = next(cycles[draw.choices(list(cycles), shares)[0]])
        numbers[name] = numbers.get(name, 0) + 1
        yield f"{name}:{numbers[name]}"


def _cycle(material: Material, server: Server, subject: str, draw: random.Random) -> Iterator[str]:
    files = {tree: files_of(material, server, subject, tree) for tree in TREES}
    todo: dict[str, list[str]] = {}
    while True:
        for tree, share in (("graph", 4), ("run", 3), ("graph.hops", 1), ("interrupted", 2)):
            if not files[tree]:
                continue
            for _ in range(share):
                file = _next(todo, tree, [*files[tree], *filter(_describes_others, files[tree])], draw)
                kind = _next(todo, f"{tree}/{file}", kinds_for(Path(file)), draw)
                readers = [name for name in applicable(subject) if tree in COMMANDS[name].reads]
                if file in NOT_READ:
                    readers = ["evaluate"]
                command = _next(todo, f"{tree} {kind}", readers, draw)
                yield f"{FAMILY}:{subject}:{tree}/{file}:{kind}:{command if command in readers else readers[0]}"


def _describes_others(file: str) -> bool:
    """Files of few bytes on which much depends are drawn twice as often."""
    return file.endswith((".json", ".toml"))


def _next(todo: dict[str, list[str]], key: str, entries: list[str], draw: random.Random) -> str:
    """The entries in a random order, again and again."""
    if not todo.get(key):
        todo[key] = draw.sample(entries, len(entries))
    return todo[key].pop()


def files_of(material: Material, server: Server, subject: str, tree: str) -> list[str]:
    """Every file of a tree; of many checkpoints alike, those of the last steps."""
    if tree == "graph.hops" and SUBJECTS[subject].order < 2:
        return []
    folder = material.tree(server, subject, tree)
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    if tree == "interrupted":
        files = [file for file in files if "seed-0/step" not in file or f"step-{2:08}" in file]
    return files


def run(words: list[str], folder: Path, draw: random.Random, material: Material, server: Server) -> list[Problem]:
    """Damage a file, run the command and hold the outcome against that of undamaged trees."""
    subject, file, kind, name, _ = words
    command = COMMANDS[name]
    known = reference(subject, name, material, server)
    place = place_for(folder, subject, name, material, server)
    tree, _, inside = file.partition("/")
    target = place.copy(tree) / inside
    undamaged = {path: path.read_bytes() for path in place.copy(tree).rglob("*") if path.is_file()}
    original = undamaged[target]
    place.metrics_matter = inside != "metrics.jsonl"
    apply(kind, target, draw, material.tree(server, subject, tree, other=True) / inside)
    damaged = {path: was for path, was in undamaged.items() if not path.is_file() or path.read_bytes() != was}
    before = command.outputs(place)
    outcome = server.run(command.words(place), folder)
    problems = check_ending(outcome, known.outcome.peak_bytes)
    if outcome.code == 0 and not problems:
        problems += _check_answer(place, command, name, known, outcome, inside, kind)
        if name == "verify" and damaged and not _says_the_same(target, original):
            problems.append(Problem("wrong", "checksums are said to hold for a file that was changed"))
    elif outcome.code:
        problems += check_refused(place, command, known, before, "resume" if tree != "interrupted" else "")
        if name == "resume" and not problems:
            problems += _check_continues(place, damaged, known)
    return problems + left_aside(folder)


def _says_the_same(target: Path, original: bytes) -> bool:
    """Whether a JSON file has its content still, in other bytes."""
    if target.suffix != ".json" or not target.is_file():
        return False
    try:
        return bool(json.loads(target.read_bytes()) == json.loads(original))
    except (ValueError, RecursionError):
        return False


def _check_answer(
    place: Place, command: Command, name: str, known: Reference, outcome: Outcome, inside: str, kind: str
) -> list[Problem]:
    wanted: Any = known.answer
    found = answer_of(place, command, outcome)
    if isinstance(found, Problem):
        return [found]
    if not place.metrics_matter:
        wanted = {key: value for key, value in wanted.items() if key not in ("metrics", "metrics_lines")}
    if name.startswith("inspect-") and inside.rpartition("/")[2] in OPTIONAL and kind in ("delete", "directory"):
        return []
    if name == "resume" and inside.endswith("best.json"):  # of the seed that is done: nobody reads it here
        wanted, found = ({key: one for key, one in side.items() if key[-5:] != " best"} for side in (wanted, found))
    different = answers.difference(found, wanted)
    return [Problem("wrong", f"exit code 0, but {different}")] if different else []


def answer_of(place: Place, command: Command, outcome: Outcome) -> Any:
    """What the command answered, or a problem if it left nothing to compare."""
    try:
        return command.answer(place, outcome)
    except (OSError, ValueError, KeyError) as error:
        return Problem("wrong", f"exit code 0, but no whole answer: {error!r:.200}")


def check_refused(
    place: Place, command: Command, known: Reference, before: dict[str, str], again: str = ""
) -> list[Problem]:
    """After a refusal every output is the old one or the new one, and what is new is whole or absent."""
    problems = []
    after = command.outputs(place)
    for file in {**before, **after}:
        allowed = (before.get(file), known.answer.get(file))
        if after.get(file) not in allowed:
            state = "is gone" if file not in after else "is neither the old nor the new one"
            problems.append(Problem("left", f"{file} {state} after a refusal"))
    made = place.folder / command.makes if command.makes else None
    if made is not None and made.is_dir():
        outcome = place.server.run(["inspect", str(made)], place.folder)
        if outcome.code:
            problems.append(Problem("left", f"{command.makes} is not whole: {outcome.stderr.strip()[-150:]}"))
    elif made is not None and made.exists():
        table = answers.table(made)
        if table != known.answer["table"]:
            problems.append(Problem("left", f"{command.makes} is there after a refusal, and is {table}"))
    return problems


def _check_continues(place: Place, damaged: dict[Path, bytes], known: Reference) -> list[Problem]:
    """A refused --resume has done no harm: with the files repaired, it comes out as it should."""
    for path, content in damaged.items():
        if path.is_dir():
            shutil.rmtree(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    place.metrics_matter = True
    outcome = place.server.run(COMMANDS["resume"].words(place), place.folder)
    if outcome.code:
        return [Problem("again", f"the repaired run does not go on: {outcome.stderr.strip()[-200:]}")]
    found = answer_of(place, COMMANDS["resume"], outcome)
    text = found.text if isinstance(found, Problem) else answers.difference(found, known.answer)
    return [Problem("again", f"the repaired run comes out differently: {text}")] if text else []


def sample(material: Material, server: Server, draw: random.Random, count: int) -> list[str]:
    """Few cases of one subject that have every kind of file and of damage, with commands that take a moment."""
    subject, found = "tables", [f"{FAMILY}:tables:graph/part-00000/nodes.arrow:flip:train:0"]
    kinds = [*BYTES, *TEXT, *JSON, *MANIFEST]
    draw.shuffle(kinds)
    for tree in ("graph", "graph.hops", "run"):
        readers = [name for name in QUICK if tree in COMMANDS[name].reads]
        for file in files_of(material, server, subject, tree):
            if re.search("part-0000[12]|seed-0/step|step-00000006", file):
                continue  # of files alike, one will do
            kind = next(kind for kind in kinds if kind in kinds_for(Path(file)))
            kinds.append(kinds.pop(kinds.index(kind)))  # the next file gets another one
            command = "evaluate" if file in NOT_READ else draw.choice(readers)
            found.append(f"{FAMILY}:{subject}:{tree}/{file}:{kind}:{command}:0")
    return [found[0], *draw.sample(found[1:], min(count, len(found) - 1))]
