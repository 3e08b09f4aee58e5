"""What is kept of a hop beside a partition: who reaches the nodes of this host's parts, in the form of in-edges."""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from nfdist import files, log
from nfdist.errors import PartitionError
from nfdist.layout import HOPS_SUFFIX
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.arrow_files import integer_type, read_only, write_columns
from nfdist.store.gate import StoredFile, recorded
from nfdist.store.manifest import MANIFEST_NAME, Part, part_directory, part_file
from nfdist.store.mapped import PartFiles
from nfdist.store.paths import Rows
from nfdist.store.ranges import Integers, offsets
from nfdist.store.spooled import spooled_numbers
from nfdist.store.store import Store

FORMAT_VERSION = 2
COLUMNS = ("indptr", "sources")
Blocks = Callable[[int], Iterable[Rows]]  # the rows of a part, some after another


@dataclass(frozen=True)
class KeptHop:
    """One hop's in-edges of some parts on disk, of the partition whose manifest has this fingerprint."""

    directory: Path
    hop: int
    fingerprint: str
    parts: tuple[Part, ...]
    numbers: Sequence[int]

    @staticmethod
    def beside(store: Store, hop: int, fingerprint: str) -> "KeptHop":
        """That of the parts that a store holds."""
        partition = store.directory.resolve()
        directory = partition.with_name(f"{partition.name}{HOPS_SUFFIX}") / f"order-{hop}"
        return KeptHop(directory, hop, fingerprint, store.parts, store.held_parts)

    def read(self) -> list[Adjacency] | None:
        """The in-edges of the parts, mapped and checked; None if they are absent or not those of this partition."""
        path = self.directory / MANIFEST_NAME
        if not self.numbers:
            return []
        try:
            content = files.load_checked(path.read_bytes(), FORMAT_VERSION, "it is no longer used")
            made_from = {name: content[name] for name in ("order", "partition_manifest_checksum")}
            if made_from != self._made_from():
                return None
            stored = content["files"]
            missing = [number for number in self.numbers if part_file(number, "indptr") not in stored]
            if missing:
                raise PartitionError(f"{self.directory} lacks part {missing[0]}")
            return self._mapped(stored)
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

    def write(self, blocks: Blocks, needed_bytes: int) -> None:
        """Write the parts; PartitionError if the disk does not allow it."""
        with files.written_aside(self.directory, needed_bytes, f"pattern of hop {self.hop}", PartitionError) as aside:
            stored = {}
            for number in self.numbers:
                (aside / part_directory(number)).mkdir()
                counts: list[Integers] = []
                with tempfile.TemporaryFile(dir=aside) as file:
                    sources = spooled_numbers(_told(blocks(number), counts), self._source_type, file)
                    for name, column in zip(COLUMNS, (self._indptr(number, counts), sources), strict=True):
                        name = part_file(number, name)
                        write_columns(aside / name, {Path(name).stem: pa.array(column)})
                        stored[name] = asdict(recorded(aside / name))
                    del sources  # with it goes the file's place on the disk
            content = {**self._made_from(), "files": stored}
            files.write_flushed(aside / MANIFEST_NAME, files.dump_checked(FORMAT_VERSION, content))

    def in_memory(self, blocks: Blocks) -> list[Adjacency]:
        """The same without files."""
        made = []
        for number in self.numbers:
            counts: list[Integers] = []
            sources = [np.empty(0, self._source_type), *_told(blocks(number), counts)]
            indptr = read_only(self._indptr(number, counts))
            made.append(Adjacency(indptr, read_only(np.concatenate(sources)), self._num_nodes))
        return made

    @property
    def _num_nodes(self) -> int:
        return self.parts[-1].stop

    @property
    def _source_type(self) -> Any:
        return integer_type(self._num_nodes)

    def _indptr(self, number: int, counts: Sequence[Integers]) -> NDArray[Any]:
        """Offsets of a part's rows; int32 where they and node ids fit."""
        ends = offsets(np.concatenate([np.empty(0, np.int64), *counts]))
        assert len(ends) == self.parts[number].num_nodes + 1
        return ends.astype(integer_type(max(int(ends[-1]), self._num_nodes)))

    def _mapped(self, recorded_files: Mapping[str, Mapping[str, Any]]) -> list[Adjacency]:
        stored = {name: StoredFile(**facts) for name, facts in recorded_files.items()}
        mapped = []
        for number in self.numbers:
            part_files = PartFiles(self.directory, number, stored, "it is no longer used")
            indptr = part_files.column("indptr", "indptr", (self.parts[number].num_nodes + 1,)).rows()
            kind = torch.int32 if self._source_type is np.int32 else torch.int64
            sources = part_files.column("sources", "sources", (int(indptr[-1]),), kind).rows()
            mapped.append(Adjacency(indptr, sources, self._num_nodes))
        return mapped

    def _made_from(self) -> dict[str, Any]:
        return {"order": self.hop, "partition_manifest_checksum": self.fingerprint}


def _told(blocks: Iterable[Rows], counts: list[Integers]) -> Iterable[NDArray[Any]]:
    """The sources of blocks of rows; how many each row has is added to `counts`."""
    for block in blocks:
        counts.append(np.diff(block.offsets))
        yield block.sources
