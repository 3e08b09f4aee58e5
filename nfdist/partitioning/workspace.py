"""Workspace: what partitioning may use of memory, shared out among its arrays, DuckDB and batches."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nfdist.errors import ConfigError, PartitionError
from nfdist.files import existing_ancestor
from nfdist.memory import format_bytes, host_bytes, private_bytes
from nfdist.partitioning.duckdb_door import Engine
from nfdist.scratch import Scratch
from nfdist.world import World

ALONE = World()
# Shares of what the process does not hold yet. The others are for batches and for numbers of every node on their way.
_SHARE_OF_ARRAYS, _SHARE_OF_SORTS = 0.25, 0.40
LEAST_BYTES = 512 << 20  # beside what the process itself takes
_BYTES_AT_ONCE_SHARE = 1 / 64
_BYTES_OF_A_THREAD = 128 << 20  # of DuckDB, which sorts a run of its own


def _not_told(done: int, total: int) -> None:
    pass


def shares(free_bytes: int) -> tuple[int, int]:
    """What arrays and what sorts may take of free memory."""
    return max(int(free_bytes * _SHARE_OF_ARRAYS), 0), max(int(free_bytes * _SHARE_OF_SORTS), 0)


@dataclass(frozen=True)
class Workspace:
    """Arrays, sorts and batches within one limit; `told(done, total)` hears how far a stage has come.

    Of a world of several ranks each has its own, and reads, orders and writes a share of the graph.
    """

    scratch: Scratch
    engine: Engine
    rows_at_once: int
    memory_bytes: int | None = None
    told: Callable[[int, int], None] = _not_told
    world: World = ALONE

    @staticmethod
    @contextmanager
    def within(
        memory_bytes: int | None,
        out: Path,
        told: Callable[[int, int], None] = _not_told,
        world: World = ALONE,
        local_size: int = 1,
    ) -> Iterator["Workspace"]:
        """What `memory_bytes` allow, None for this machine's memory; files lie beside `out` and are gone in the end.

        `local_size` ranks of a world share a machine.
        """
        held = private_bytes()
        free = (memory_bytes or max(host_bytes() // local_size, held + LEAST_BYTES)) - held
        if free < LEAST_BYTES:
            text = f"--memory {format_bytes(memory_bytes or 0)} is too little: the process itself takes "
            raise ConfigError(f"{text}{format_bytes(held)}, give at least {format_bytes(held + LEAST_BYTES)}")
        folder = existing_ancestor(out)
        cure = "choose an --out on a disk"
        for_arrays, for_sorts = shares(free)
        scratch = Scratch(for_arrays, folder, "partitioning", cure, PartitionError)
        threads = max(1, min(len(os.sched_getaffinity(0)) // local_size, for_sorts // _BYTES_OF_A_THREAD))
        rows_at_once = max(1 << 16, min(1 << 22, int(free * _BYTES_AT_ONCE_SHARE) // 16))
        with Engine(for_sorts, threads, folder / out.name) as engine:
            yield Workspace(scratch, engine, rows_at_once, memory_bytes, told, world)

    @staticmethod
    def unlimited() -> "Workspace":
        """All arrays in memory, as small graphs can be."""
        limit = int(host_bytes() * _SHARE_OF_SORTS)
        return Workspace(Scratch(), Engine(limit, 1, Path(tempfile.gettempdir()) / "nfdist"), 1 << 22)
