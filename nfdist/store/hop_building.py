"""The building of a hop that is not kept yet: what it will take is told or refused first, then it is written.

Ranks build the parts that they hold. For paths through other parts they borrow in-edges from those who have them, so
that every rank must take part where a store is remote, also with nothing to build.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from nfdist import log, seeds
from nfdist.collectives import patiently, together, total
from nfdist.errors import ConfigError, PartitionError
from nfdist.files import existing_ancestor
from nfdist.memory import available_bytes, private_bytes
from nfdist.scratch import Scratch
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.borrowed import Borrowed
from nfdist.store.distributed import DistributedStore
from nfdist.store.kept_hops import KeptHop
from nfdist.store.paths import PATH_BYTES, PATHS_AT_ONCE, Reached, Rows, Steps, count_paths, extended, reach
from nfdist.store.ranges import pieces
from nfdist.store.store import GraphStore
from nfdist.world import World

Numbers = NDArray[np.int64]
GIB = 2**30
DISK_SHARE = 0.9  # of the free room on a disk, which others use as well
SAMPLED_ROWS = 200  # whose ends stand for those of all rows: off by a few hundredths
SAMPLED_PATHS = 1 << 29  # that are followed for that at most, or a few seconds' worth
FEWEST_SAMPLED_ROWS = 8
PATHS_PER_SECOND = 3e7  # that a core follows
QUIET_SECONDS = 60.0
EDGES_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Limits:
    """What the building of hops may take of a host; None is what the host has.

    `disk_bytes` are those of the files beside the partition, `memory_bytes` all that the process may hold privately.
    """

    disk_bytes: int | None = None
    memory_bytes: int | None = None

    def scratch(self, folder: Path) -> Scratch:
        """For what is borrowed of other hosts: in memory, a part of it, or in files."""
        held = available_bytes()
        if self.memory_bytes is not None:
            held = 2 * max(0, self.memory_bytes - private_bytes())
        kept = folder if os.access(folder, os.W_OK) else None
        return Scratch(None if held is None else held // 4, kept, "the building of hops", refusal=PartitionError)


@dataclass(frozen=True)
class HopSize:
    """What a hop of some parts comes to: its edges, at most or by a sample, and the paths that lead to them."""

    edges: int
    paths: int
    rows: int
    sampled: bool = False

    @property
    def disk_bytes(self) -> int:
        return 4 * self.edges + 8 * self.rows

    @property
    def memory_bytes(self) -> int:
        """Of the work, while it is built."""
        threads = max(1, torch.get_num_threads())
        return 8 * self.rows + threads * PATH_BYTES * min(self.paths, PATHS_AT_ONCE)


@dataclass(frozen=True)
class HopBuilding:
    """One hop of the parts that this rank lacks, none of them or all it holds; `order` is what a user has asked for."""

    store: GraphStore
    kept: KeptHop
    order: int
    reached: Mapping[int, Reached]
    limits: Limits

    def build(self) -> list[Adjacency]:
        """The hop, kept on disk if that allows it, and mapped. Every rank of a remote store must call this."""
        scratch = together(self.world, lambda: self.limits.scratch(existing_ancestor(self.kept.directory)))
        steps = self._steps(patiently(self.world, self._elsewhere), scratch)
        paths = patiently(self.world, lambda: {number: count_paths(one, steps) for number, one in self.reached.items()})
        size = self._size(paths, scratch)
        together(self.world, lambda: self._refuse(size), ConfigError)
        if isinstance(self.store, DistributedStore):
            assert steps.borrowed is not None
            steps = Steps(self.store.local, steps.borrowed.filled(self.store, scratch))
        return patiently(self.world, lambda: self._built(steps, paths, size))

    @property
    def world(self) -> World:
        return self.store.world if isinstance(self.store, DistributedStore) else World()

    def _elsewhere(self, rows: Iterable[tuple[int, slice]] | None = None) -> Numbers:
        """The nodes in parts elsewhere that paths to some rows of parts go through, by default to all of them."""
        if not self.store.remote:
            return np.empty(0, dtype=np.int64)
        marks = np.zeros(self.store.num_nodes, dtype=bool)
        if rows is None:
            rows = (
                (number, some) for number, one in self.reached.items() for some in pieces(one.counts(), EDGES_AT_ONCE)
            )
        for number, some in rows:
            marks[self.reached[number].rows(some.start, some.stop).sources] = True
        for number in self.store.local.held_parts:
            marks[self.store.parts[number].start : self.store.parts[number].stop] = False
        return np.flatnonzero(marks)

    def _steps(self, elsewhere: Numbers, scratch: Scratch, *, filled: bool = False) -> Steps:
        """The edges of the last step, of those elsewhere at first only their number. Every rank must call this."""
        if not isinstance(self.store, DistributedStore):
            return Steps(self.store.local)
        borrowed = Borrowed.degrees_of(self.store, elsewhere, scratch)
        return Steps(self.store.local, borrowed.filled(self.store, scratch) if filled else borrowed)

    def _size(self, paths: Mapping[int, Numbers], scratch: Scratch) -> HopSize:
        """By the number of paths, or by a sample if these might be too many. Every rank must call this."""
        everyone = self.store.num_nodes
        bound = sum(int(np.minimum(some, everyone).sum()) for some in paths.values())
        most = HopSize(bound, sum(int(some.sum()) for some in paths.values()), sum(map(len, paths.values())))
        unsure = most.disk_bytes > self._room()
        if not int(total(self.world, torch.tensor(int(unsure)))):
            return most
        chosen = self._sampled(paths) if unsure else []
        steps = self._steps(together(self.world, lambda: self._elsewhere(chosen)), scratch, filled=True)

        def share() -> float:
            """Of the bound: the mean over rows that are drawn by their own share of it."""
            found = []
            for number, row in chosen:
                ends = reach(self.reached[number], steps, paths[number], row)[1]
                found.append(len(ends) / min(int(paths[number][row.start]), everyone))
            return float(np.mean(found)) if found else 1.0

        edges = round(patiently(self.world, share) * bound)
        return HopSize(edges, most.paths, most.rows, sampled=True) if unsure else most

    def _sampled(self, paths: Mapping[int, Numbers]) -> list[tuple[int, slice]]:
        """Parts and rows, drawn by the number of ends that a row may have: those of hubs count most."""
        weights = np.concatenate([np.minimum(some, self.store.num_nodes) for some in paths.values()])
        ends = np.cumsum(weights, dtype=np.float64)
        mean_paths = float(np.concatenate(list(paths.values())).astype(np.float64) @ (weights / ends[-1]))
        count = int(np.clip(SAMPLED_PATHS / mean_paths, FEWEST_SAMPLED_ROWS, SAMPLED_ROWS))
        drawn = seeds.numpy_generator(0, "sampled paths", self.kept.hop).random(count) * ends[-1]
        rows = np.searchsorted(ends, drawn, side="right")
        numbers = list(paths)
        firsts = np.cumsum([0, *(len(paths[number]) for number in numbers)])
        parts = np.searchsorted(firsts, rows, side="right") - 1
        places = (rows - firsts[parts]).tolist()
        return [(numbers[part], slice(row, row + 1)) for part, row in zip(parts.tolist(), places, strict=True)]

    def _room(self) -> int:
        """Bytes on the disk for this hop."""
        if self.limits.disk_bytes is not None:
            return self.limits.disk_bytes
        return int(DISK_SHARE * shutil.disk_usage(existing_ancestor(self.kept.directory)).free)

    def _refuse(self, size: HopSize) -> None:
        room, hop = self._room(), self.kept.hop
        if size.disk_bytes <= room:
            return
        needed = f"{'about' if size.sampled else 'up to'} {size.edges:,} edges at hop {hop}"
        raise ConfigError(
            f"relation.order = {self.order} needs {needed}, {size.disk_bytes / GIB:.1f} GiB of disk and "
            f"{size.memory_bytes / GIB:.1f} GiB of memory, more than the {room / GIB:.1f} GiB for "
            f"{self.kept.directory}: use a lower order, such as relation.order={hop - 1}, or relation.kind=power"
        )

    def _built(self, steps: Steps, paths: Mapping[int, Numbers], size: HopSize) -> list[Adjacency]:
        seconds = size.paths / PATHS_PER_SECOND / max(1, torch.get_num_threads())
        if seconds > QUIET_SECONDS:
            log.notice(
                f"hop {self.kept.hop} has {'about' if size.sampled else 'up to'} {size.edges:,} edges at the ends of "
                f"{size.paths:,} paths: some {seconds / 60:.0f} minutes of work and {size.disk_bytes / GIB:.1f} GiB"
            )
        if not self.reached:
            return []
        with log.progress(size.paths, f"paths of {self.kept.hop} steps") as progress:

            def blocks(number: int) -> Iterator[Rows]:
                done = 0
                for rows in extended(self.reached[number], steps, paths[number]):
                    yield rows
                    last, done = done, done + len(rows.offsets) - 1
                    progress.advance(int(paths[number][last:done].sum()))

            trouble = "what was written has changed"
            try:
                self.kept.write(blocks, size.disk_bytes)
            except PartitionError as error:
                trouble = str(error)
            found = self.kept.read()  # what another process has made meanwhile will do as well
            if found is None:
                room = available_bytes()
                if room is not None and size.disk_bytes > room // 2:
                    raise PartitionError(f"{trouble}; paths of {self.kept.hop} steps do not fit in memory either")
                log.notice(f"paths of {self.kept.hop} steps are kept in memory, not on disk: {trouble}")
                found = self.kept.in_memory(blocks)
        return found
