"""Cases of command lines: options with values that make no sense, and words that are no options at all."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.faults import answers
from tests.faults.commands import place_for, reference
from tests.faults.inputs import check_partition
from tests.faults.material import Material
from tests.faults.rule import Problem, check_ending, left_aside
from tests.faults.serving import Server

FAMILY = "option"
NUMBERS = ("0", "-1", "100000000000000000000", "x", "nan", "1.5", "")
PATHS = ("", "nowhere", "/dev/null", "/etc/passwd", "x" * 300)
# Words after the command; {graph}, {run}, {new}, {source} and {folder} stand for undamaged trees and the case's folder.
PREDICT = "predict {run} {new} --out {folder}/out.parquet"
EVALUATE = "evaluate {run} --no-outputs --no-states"
PARTITION = "partition {source} --parts 2 --out {folder}/out"
OPTIONS: dict[str, tuple[str, ...]] = {
    f"{PREDICT} --top-k": NUMBERS,
    f"{PREDICT} --partition": PATHS,
    f"{PREDICT} --checkpoint": PATHS,
    "predict {run} {new} --out": ("", "{folder}", "{folder}/none/out.parquet", "{new}", "/dev/full", "x" * 300),
    "predict {run} --out {folder}/out.parquet": PATHS,
    "predict --out {folder}/out.parquet": PATHS,
    "evaluate {run} --top-k": NUMBERS,
    f"{EVALUATE} --memory": ("0", "-1", "x", "1e20GiB", "1KiB", "1", "", "nanGiB", "infGiB", "99999999999999999999"),
    f"{EVALUATE} --partition": PATHS,
    f"{EVALUATE} --checkpoint": (*PATHS, "{run}"),
    "evaluate {run} --top-neighbors node-000 --count": NUMBERS,
    "evaluate {run} --top-neighbors": (
        "nobody",
        ",",
        "/dev/null",
        "/etc/passwd",
        "{graph}",
        "{new}",
        "{folder}/nowhere",
    ),
    "evaluate {run} --follow --until-done --poll-seconds": (*NUMBERS, "inf", "1e20"),
    "evaluate": (*PATHS, "{graph}", "{folder}"),
    "inspect": (*PATHS, "{folder}", "/", "{new}", "{source}"),
    f"{PARTITION} --seed": NUMBERS,
    f"{PARTITION} --knn": NUMBERS,
    f"{PARTITION} --split-index": NUMBERS,
    f"{PARTITION} --split": (
        "",
        "random:",
        "random:nan/0/0",
        "random:1/1/1",
        "random:0/0/0",
        "official",
        "x",
        "random:1e-300/0/0",
    ),
    f"{PARTITION} --scale": NUMBERS,
    f"{PARTITION} --task": ("single", "binary", "multi", "x", ""),
    f"{PARTITION} --id-column": ("", "label", "features", "nowhere", "split"),
    f"{PARTITION} --label-column": ("id", "features", "nowhere", "split"),
    f"{PARTITION} --split-column": ("id", "features", "nowhere", "label"),
    f"{PARTITION} --feature-columns": ("id", "label", "nowhere", "split", "features"),
    f"{PARTITION} --method file --assignment": PATHS,
    "partition amazon2m-like --parts 2 --out {folder}/out --scale": (
        "0",
        "-1",
        "nan",
        "inf",
        "1e-9",
        "1e-5",
        "1e20",
        "x",
    ),
    "partition {source} --out {folder}/out --parts": NUMBERS,
    "partition {source} --parts 2 --out": ("", "{folder}", "/dev/null/x", "{folder}/a/b/c", "x" * 300, "/proc/x"),
    "partition --parts 2 --out {folder}/out": (*PATHS, "{graph}", "{run}", "digits", "cora"),
    "plan --parts 2": (*PATHS, "{graph}", "{run}"),
    "plan {source} --parts": NUMBERS,
    "train": (*PATHS, "{graph}", "{run}"),
    "train {config} run.dir={folder}/trained": (
        "x",
        "=",
        "a=b",
        "a.b=1",
        "train.epoch=1",
        ".=1",
        "train.=1",
        "--nope",
        "train.epochs",
    ),
    "": ("", "nothing", "--nothing", "-", "--", "train", "evaluate --nope", "inspect a b", "--version extra"),
}


def names(material: Material, server: Server, draw: random.Random, subjects: tuple[str, ...]) -> Iterator[str]:
    """Each command line in turn, with a value that it has not had yet."""
    todo = {number: draw.sample(range(len(values)), len(values)) for number, values in enumerate(OPTIONS.values())}
    while any(todo.values()):
        for number in draw.sample(list(todo), len(todo)):
            if todo[number]:
                yield _name(number, todo[number].pop())


def _name(number: int, place: int) -> str:
    words = list(OPTIONS)[number].split()
    last = words[-1] if words else "nothing"
    label = f"{words[0]} {last}" if len(words) > 1 and last.startswith("-") else " ".join(words[:1]) or "nothing"
    return f"{FAMILY}:{label}:{number}:{place}"


def run(words: list[str], folder: Path, draw: random.Random, material: Material, server: Server) -> list[Problem]:
    """Run a command line whose last word makes no sense."""
    number, number_of_value = int(words[1]), int(words[2])
    template, values = list(OPTIONS.items())[number]
    known = reference("tables", "score", material, server).outcome
    place = place_for(folder, "tables", "evaluate", material, server)
    new = folder / "new.parquet"
    shutil.copyfile(place.new_nodes, new)
    fill = {
        "graph": str(place["graph"]),
        "run": str(place["run"]),
        "new": str(new),
        "source": str(material.source("tables")),
        "folder": str(folder),
        "config": place.config,
    }
    value = values[number_of_value]
    last = value.split() if template == "" and value else [value.format(**fill)]
    given = [*(word.format(**fill) for word in template.split()), *last]
    before = {"new": answers.digest(new), **answers.evaluation_files(place["run"])}
    outcome = server.run(given, folder)
    problems = check_ending(outcome, known.peak_bytes)
    after = {"new": answers.digest(new), **answers.evaluation_files(place["run"])}
    if outcome.code and after != before:
        problems.append(Problem("left", f"after a refusal {answers.difference(after, before)}"))
    if outcome.code == 0 and after["new"] != before["new"]:
        problems.append(Problem("accepted", "the output took the place of its own input"))
    for made in ("out", "out.parquet", "trained"):
        if outcome.code and (folder / made).exists():
            problems.append(Problem("left", f"{made} is there after a refusal"))
    if outcome.code == 0 and (folder / "out" / "manifest.json").exists():
        problems += check_partition(folder / "out", server, known.peak_bytes)
    return problems + left_aside(folder)


def sample(material: Material, server: Server, draw: random.Random, count: int) -> list[str]:
    """A number that is none, an output over its own input, and a command that there is not."""
    lines = list(OPTIONS)
    wanted = ((f"{PREDICT} --top-k", 3), ("predict {run} {new} --out", 3), ("", 1))
    return [_name(lines.index(template), place) for template, place in wanted]
