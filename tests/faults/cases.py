"""The table of cases: families of faults, how many of each, and how one is run from its name and a seed alone."""

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from tests.faults import damaged, disks, inputs, options, signals, wrong_settings
from tests.faults.material import Material
from tests.faults.rule import Problem
from tests.faults.serving import Server

SHARES = ((damaged, 52), (inputs, 17), (wrong_settings, 14), (options, 7), (signals, 6), (disks, 4))
FAMILIES: dict[str, tuple[ModuleType, int]] = {module.FAMILY: (module, share) for module, share in SHARES}
SUBJECTS = ("tables", "wide", "sparse")


Runner = Callable[[list[str], Path, random.Random, Material, Server], list[Problem]]


def table(material: Material, server: Server, seed: int, count: int, families: list[str]) -> list[str]:
    """The names of `count` cases, drawn by a seed, in shares of the families."""
    total = sum(FAMILIES[family][1] for family in families)
    found: list[str] = []
    for family in sorted(families, key=lambda family: FAMILIES[family][1]):
        module, share = FAMILIES[family]
        draw = random.Random(f"{seed} {family}")
        wanted = round((count - len(found)) * share / total)  # the largest comes last and gets what is left
        total -= share
        names: Iterator[str] = module.names(material, server, draw, SUBJECTS)
        found += itertools.islice(names, wanted)
    random.Random(seed).shuffle(found)  # so that a run cut short has some of each
    return found


def run(name: str, seed: int, folder: Path, material: Material, server: Server) -> list[Problem]:
    """Run one case in a folder of its own."""
    family, *words = name.split(":")
    runner: Runner = FAMILIES[family][0].run
    return runner(words, folder, random.Random(f"{seed} {name}"), material, server)


def sample(material: Material, server: Server, seed: int) -> list[str]:
    """The names of a few cases that together have something of everything."""
    draw = random.Random(seed)
    return [name for module, _ in FAMILIES.values() for name in module.sample(material, server, draw, 11)]
