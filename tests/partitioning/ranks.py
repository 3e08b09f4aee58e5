"""Partitioning by the ranks of a test's world."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from nfdist.errors import NfdistError
from nfdist.partitioning import assign
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.world import World
from tests.partitioning.every_source import by_degrees, contents
from tests.partitioning.small_memory import nothing_fits

Job = tuple[str, dict[str, Any]]  # a source and the keys of a recipe


def partition_all(world: World, jobs: list[Job], tiny: bool = False) -> list[str]:
    """Make one partition after another, each rank where its recipe says; what was refused, "" where nothing was."""
    told = []
    for source, recipe in jobs:
        out = recipe["out"].format(rank=world.rank)
        try:
            with patch.object(assign, "metis", by_degrees), nothing_fits() if tiny else nullcontext():
                partition(Recipe.build(source, {**recipe, "out": out}), world, world.size)
            told.append("")
        except NfdistError as error:
            told.append(str(error))
    return told


def parts_together(folders: list[Path]) -> dict[str, str]:
    """A digest of every file in the partitions of several hosts, which agree on what they share."""
    found: dict[str, str] = {}
    for folder in folders:
        for name, digest in contents(folder).items():
            assert found.setdefault(name, digest) == digest, f"{name} differs in {folder}"
    return found
