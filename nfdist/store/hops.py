"""Hops: who reaches whom in at most j steps on the whole graph, for each j up to an order, induced on batches.

Orders from 2 on are computed once and kept beside the partition, part by part, in the form of its own in-edges.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from nfdist import files, log
from nfdist.errors import PartitionError
from nfdist.layout import HOPS_SUFFIX
from nfdist.memory import host_bytes
from nfdist.sparse.adjacency import MAX_EDGES, Adjacency, refuse_beyond
from nfdist.store.arrow_files import write_columns
from nfdist.store.gate import StoredFile, recorded
from nfdist.store.manifest import MANIFEST_NAME, Part, part_directory, part_file
from nfdist.store.mapped import PartFiles
from nfdist.store.store import GraphStore, Store

FORMAT_VERSION = 2
COLUMNS = ("indptr", "sources")
BYTES_AN_EDGE = 32  # a source, a weight, and both once more with a position for the transposed edges


class Hops:
    """The patterns of (A + I)^j on the whole graph: hop 1 is that of a store, `higher` ones are stores of their own."""

    def __init__(self, store: GraphStore, order: int, higher: Sequence[Store], weighted: bool = False) -> None:
        self.order, self.weighted = order, weighted
        self._store, self.higher = store, higher

    @staticmethod
    def open(store: GraphStore, order: int, max_edges: int | None = None, weighted: bool = False) -> "Hops":
        """Map the patterns up to an order, after building those that are not kept yet; refused beyond `max_edges`.

        By default these are as many as a quarter of this host's memory has room for while they are built and used.
        In a `weighted` graph the edges of hop 1 have their weights, those of higher ones none.
        """
        if weighted and not store.manifest.weighted:
            raise PartitionError(
                f"relation.weights = true needs edge weights, and {store.directory} has none: partition edges with a "
                "column named weight, or set relation.weights=false"
            )
        if order < 2:
            return Hops(store, order, [], weighted)
        max_edges = min(MAX_EDGES, host_bytes() // (4 * BYTES_AN_EDGE)) if max_edges is None else max_edges
        if store.remote or len(store.local.held_parts) < len(store.parts):
            raise PartitionError(
                f"relation.order {order} needs all parts of {store.directory} on every host: "
                "copy them or use relation.order=1 or relation.kind=power"
            )
        higher = [store.local.with_in_edges(pattern) for pattern in _patterns(store.local, order, max_edges)]
        return Hops(store, order, higher, weighted)

    def induced(self, hop: int, node_ids: Tensor, sources: Tensor | None = None) -> Adjacency:
        """What `Store.induced` does, for paths of at most `hop` steps through any nodes of the graph."""
        assert 1 <= hop <= self.order
        if hop == 1:
            return self._store.induced(node_ids, sources, loops=True, weights=self.weighted)
        return self.higher[hop - 2].induced(node_ids, sources)


def _patterns(store: Store, order: int, max_edges: int) -> Iterator[list[Adjacency]]:
    """The in-edges of every part for each hop from 2 on, mapped where they are kept."""
    directory = store.directory.resolve()
    fingerprint = store.fingerprint()
    step: Adjacency | None = None
    shorter: list[Adjacency] = []
    for hop in range(2, order + 1):
        kept = _Kept(
            directory.with_name(f"{directory.name}{HOPS_SUFFIX}") / f"order-{hop}", hop, fingerprint, store.parts
        )
        found = kept.read()
        if found is None:
            kept.discard()
            if step is None:
                step = store.induced(torch.arange(store.num_nodes), loops=True)
            shorter = shorter or _by_part(step, store.parts)
            bound = sum(part.paths_after(step) for part in shorter)
            refuse_beyond(max_edges, bound, order, hop)
            found = kept.build(shorter, step, bound)
        yield found
        shorter = found


def _by_part(graph: Adjacency, parts: Sequence[Part]) -> list[Adjacency]:
    """The rows of each part, as views."""
    rows = [graph.indptr[part.start : part.stop + 1] for part in parts]
    return [Adjacency(indptr - indptr[0], graph.sources[indptr[0] : indptr[-1]], graph.num_sources) for indptr in rows]


@dataclass(frozen=True)
class _Kept:
    """One hop's in-edges on disk, of the partition whose manifest has this fingerprint."""

    directory: Path
    hop: int
    fingerprint: str
    parts: tuple[Part, ...]

    def read(self) -> list[Adjacency] | None:
        """The in-edges of every part, mapped and checked; None if they are absent or not those of this partition."""
        path = self.directory / MANIFEST_NAME
        try:
            content = files.load_checked(path.read_bytes(), FORMAT_VERSION, "it is no longer used")
            made_from = {name: content[name] for name in ("order", "partition_manifest_checksum")}
            return self._mapped(content["files"]) if made_from == self._made_from() else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError, PartitionError) as error:
            log.notice(
                f"paths of {self.hop} steps are built again: {path if isinstance(error, ValueError) else ''} {error}"
            )
            return None

    def discard(self) -> None:
        """Make room, at once after a failed `read`: later there may be what another process has made."""
        with suppress(OSError):
            files.remove(self.directory)

    def build(self, shorter: list[Adjacency], step: Adjacency, bound: int) -> list[Adjacency]:
        """Extend the paths of the hop before by a step, keep them if the disk allows it, and map what is kept."""
        trouble = "what was written has changed"
        try:
            self._write(self._extended(shorter, step), bound)
        except PartitionError as error:
            trouble = str(error)
        found = self.read()  # what another process has made meanwhile will do as well
        if found is None:
            log.notice(f"paths of {self.hop} steps are kept in memory, not on disk: {trouble}")
            found = list(self._extended(shorter, step))
        return found

    def _extended(self, shorter: list[Adjacency], step: Adjacency) -> Iterator[Adjacency]:
        with log.progress(len(shorter), f"paths of {self.hop} steps") as progress:
            for part in shorter:
                yield part.after(step)
                progress.advance()

    def _write(self, patterns: Iterator[Adjacency], bound: int) -> None:
        with files.written_aside(self.directory, 4 * bound, f"pattern of hop {self.hop}", PartitionError) as aside:
            stored = {}
            for number, pattern in enumerate(patterns):
                (aside / part_directory(number)).mkdir()
                for name, column in zip(COLUMNS, (pattern.indptr, pattern.sources), strict=True):
                    file = part_file(number, name)
                    write_columns(aside / file, {name: pa.array(column.numpy())})
                    stored[file] = asdict(recorded(aside / file))
            content = {**self._made_from(), "files": stored}
            files.write_flushed(aside / MANIFEST_NAME, files.dump_checked(FORMAT_VERSION, content))

    def _mapped(self, recorded_files: dict[str, dict[str, Any]]) -> list[Adjacency]:
        num_nodes = self.parts[-1].stop
        stored = {name: StoredFile(**facts) for name, facts in recorded_files.items()}
        mapped = []
        for number, part in enumerate(self.parts):
            part_files = PartFiles(self.directory, number, stored, "it is no longer used")
            indptr = part_files.column("indptr", "indptr", (part.num_nodes + 1,)).rows()
            sources = part_files.column("sources", "sources", (int(indptr[-1]),), indptr.dtype).rows()
            mapped.append(Adjacency(indptr, sources, num_nodes))
        return mapped

    def _made_from(self) -> dict[str, Any]:
        return {"order": self.hop, "partition_manifest_checksum": self.fingerprint}
