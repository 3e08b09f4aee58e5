"""Partitioning by the ranks of a test's world."""

import errno
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from nfdist.errors import NfdistError
from nfdist.partitioning import assign
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.sources.formats import papers100m_like
from nfdist.store import writing
from nfdist.store.arrow_files import write_columns
from nfdist.store.distributed import DistributedStore
from nfdist.store.store import Store
from nfdist.world import World
from tests.partitioning.every_source import by_degrees, contents
from tests.partitioning.small_memory import nothing_fits

Job = tuple[str, dict[str, Any]]  # a source and the keys of a recipe
PLACES_AT_ONCE = 50  # of papers100m-like: all ranks shall make some


def partition_all(world: World, jobs: list[Job], tiny: bool = False, hosts: str = "") -> list[str]:
    """Make one partition after another; what was refused, "" where nothing was.

    With folders of `hosts` every rank works in one of its own, as hosts without a common disk do.
    """
    if hosts:
        os.chdir(hosts.format(rank=world.rank))
    told = []
    for source, recipe in jobs:
        try:
            with (
                patch.object(assign, "metis", by_degrees),
                patch.object(papers100m_like, "_PLACES_AT_ONCE", PLACES_AT_ONCE),
                nothing_fits() if tiny else nullcontext(),
            ):
                partition(Recipe.build(source, recipe), world, 1 if hosts else world.size)
            told.append("")
        except NfdistError as error:
            told.append(str(error))
    return told


def fail_to_write(world: World, job: Job, failing_rank: int) -> str:
    """What a rank says when the disk of one is full after its first file."""
    written: list[Path] = []

    def write(path: Path, columns: dict[str, Any]) -> None:
        if written and world.rank == failing_rank:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path)
        write_columns(path, columns)

    with patch.object(writing, "write_columns", write):
        return partition_all(world, [job])[0]


def read_together(world: World, hosts: str, parts: list[list[int]]) -> list[list[float]]:
    """The features of all nodes, of which every rank holds the parts of its host."""
    store = Store.open(hosts.format(rank=world.rank) + "/out", parts[world.rank])
    found: list[list[float]] = DistributedStore(store, world).take(torch.arange(store.num_nodes)).tolist()
    return found


def parts_together(folders: list[Path]) -> dict[str, str]:
    """A digest of every file in the folders of several hosts, which agree on what all of them have."""
    found: dict[str, str] = {}
    for folder in folders:
        for name, digest in contents(folder).items():
            assert found.setdefault(name, digest) == digest, f"{name} differs in {folder}"
    return found
