"""Cases of settings and recipe keys: values of the wrong type, out of range or beyond any machine."""

import random
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.faults import answers
from tests.faults.commands import place_for, reference
from tests.faults.inputs import check_partition
from tests.faults.material import Material
from tests.faults.rule import Problem, check_ending, left_aside
from tests.faults.serving import Outcome, Server

FAMILY = "setting"
# Values as TOML writes them, by the type of the key; those of another type must be refused.
IN_TYPE = {
    "int": ("-1", "0", "1000000", "1000000000", "9223372036854775807", "100000000000000000000"),
    "float": ("-1.0", "0.0", "1e-300", "1e300", "100000000000000000000", "inf", "-inf", "nan"),
    "bool": (),
    "str": ('""', '"unknown"', '"."', '"a\\u0000b"', '"' + "x" * 300 + '"', '"/dev/null"', '"random:nan/0/0"'),
    "list": ("[]", "[-1]", "[1, 1]", "[100000000000000000000]", "[3, 2, 1]"),
    "names": ("[]", '[""]', '["nowhere"]', '["x", "x"]'),
}
OFF_TYPE = {
    "int": ("1.5", '"x"', "true", "[]", "inf", "nan", '""', "{}", "1979-05-27"),
    "float": ('"x"', "true", "[1.0]", '""', "{}"),
    "bool": ("1", '"yes"', "[]", "0.0", '"no"'),
    "str": ("1", "true", "[]", "1.5", "{}"),
    "list": ('"x"', "1", '["a"]', "[1.5]", "[[1]]", "true"),
    "names": ('"abc"', "1", "[1]", "true"),
}
ENDLESS = ("train.epochs",)  # large values mean a long training, which a signal ends
STOP_AFTER_SECONDS = 3.0
DIVERGED = re.compile(r" is (nan|-?inf) at step \d+")


def names(material: Material, server: Server, draw: random.Random, subjects: tuple[str, ...]) -> Iterator[str]:
    """Each key in turn, with a value that it has not had yet."""
    keys = {f"train:{key}": _kind(kind) for key, kind in server.facts["settings"].items()}
    keys |= {f"recipe:{key}": _kind(kind) for key, kind in server.facts["recipe"].items()}
    todo = {
        key: draw.sample([*IN_TYPE[kind], *OFF_TYPE[kind]], len(IN_TYPE[kind]) + len(OFF_TYPE[kind]))
        for key, kind in keys.items()
    }
    while any(todo.values()):
        for key in draw.sample(list(todo), len(todo)):
            if todo[key]:
                yield f"{FAMILY}:{key}:{todo[key].pop()}"


def _kind(annotation: str) -> str:
    """The word for a type that IN_TYPE knows."""
    if annotation.startswith("tuple"):
        return "list" if "int" in annotation else "names"
    return annotation.partition(" ")[0]


def run(words: list[str], folder: Path, draw: random.Random, material: Material, server: Server) -> list[Problem]:
    """Train or partition with one value that is not as it should be."""
    command, key, value = words[0], words[1], ":".join(words[2:])
    kind = _kind(server.facts["settings" if command == "train" else "recipe"][key])
    runner = _train if command == "train" else _partition
    outcome, problems = runner(folder, key, value, material, server)
    if outcome.code == 0 and value in OFF_TYPE[kind]:
        problems.append(Problem("accepted", f"{key} = {value} was accepted, which is of the wrong type"))
    return problems + left_aside(folder)


def _train(folder: Path, key: str, value: str, material: Material, server: Server) -> tuple[Outcome, list[Problem]]:
    known = reference("tables", "train", material, server).outcome
    place = place_for(folder, "tables", "train", material, server)
    place.copy("graph")
    before = answers.content_of(folder / "graph.hops")
    given = {
        "data.partition": f'"{place["graph"]}"',
        "run.dir": f'"{folder}/trained"',
        "train.epochs": "1",
        "train.seeds": "[0]",
        **({"observe.port": "19431"} if key == "observe.host" else {}),
        key: value,
    }
    ending = {"signal": signal.SIGTERM, "after": STOP_AFTER_SECONDS} if key in ENDLESS else {}
    overrides = [f"{name}={one}" for name, one in given.items()]
    outcome = server.run(["train", place.config, *overrides], folder, **ending)  # type: ignore[arg-type]
    problems = check_ending(outcome, known.peak_bytes, (0, 2, 143) if outcome.sent else (0, 2))
    if outcome.code == 2 and DIVERGED.search(outcome.stderr):
        shutil.rmtree(folder / "trained")  # no refusal of a value: the run had begun, and tells how far it came
    if outcome.code == 2:
        problems += _check_nothing_new(folder, before)
    elif outcome.code == 0 and not problems and key != "run.dir" and not (folder / "trained" / "result.json").exists():
        problems.append(Problem("wrong", "exit code 0, but there is no result.json"))
    return outcome, problems


def _check_nothing_new(folder: Path, hops: dict[str, str]) -> list[Problem]:
    """A refused value leaves no run directory, and no hops that nobody asked for."""
    problems = []
    more = [entry.name for entry in folder.iterdir() if entry.name not in (".case", "graph", "graph.hops")]
    if more:
        problems.append(Problem("left", f"{more[0][:50]} is there after a refusal"))
    if answers.content_of(folder / "graph.hops").keys() != hops.keys():
        problems.append(Problem("left", "paths were added beside the partition before the value was refused"))
    return problems


def _partition(folder: Path, key: str, value: str, material: Material, server: Server) -> tuple[Outcome, list[Problem]]:
    known = reference("tables", "train", material, server).outcome
    original = material.source("recipe")
    place_for(folder, "tables", "train", material, server)
    recipe = folder / "recipe" / "recipe.toml"
    shutil.copytree(original, recipe.parent)
    lines = recipe.read_text().replace(str(original), str(recipe.parent)).splitlines()
    lines = [line for line in lines if line.partition(" ")[0] not in (key, "method", "assignment")]
    out = [f'out = "{folder}/out"', 'method = "random"']
    recipe.write_text(
        "\n".join([*lines, *(line for line in out if line.partition(" ")[0] != key), f"{key} = {value}\n"])
    )
    outcome = server.run(["partition", str(recipe)], folder / "recipe")
    problems = check_ending(outcome, known.peak_bytes)
    if outcome.code == 0 and not problems and (folder / "out").exists():
        problems += check_partition(folder / "out", server, known.peak_bytes)
    elif outcome.code and (folder / "out").exists():
        problems.append(Problem("left", "a partition is there after a refusal"))
    return outcome, problems


def sample(material: Material, server: Server, draw: random.Random, count: int) -> list[str]:
    return [
        f"{FAMILY}:train:attention.temperature:inf",
        f"{FAMILY}:train:model.channels:100000000000000000000",
        f"{FAMILY}:train:relation.order:1000000",
        f'{FAMILY}:recipe:directed:"no"',
        f'{FAMILY}:recipe:seed:"x"',
    ]
