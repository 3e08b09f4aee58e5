"""The rows of a table that a rank reads: as many of Parquet files as the others, of CSV files whole ones."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch

from nfdist.collectives import alike, gather_text, together, total
from nfdist.errors import PartitionError
from nfdist.reading import reading
from nfdist.scratch import Scratch
from nfdist.store.gathered import gathered
from nfdist.store.ranges import offsets
from nfdist.store.row_shares import RowShares
from nfdist.store.spooled import spooled
from nfdist.store.table_files import Rows, Table, expected_bytes
from nfdist.world import World


def read_rows(
    table: Table,
    names: Sequence[str],
    types: Mapping[str, pa.DataType] | None,
    verbatim: Sequence[str],
    scratch: Scratch,
    world: World,
) -> Rows:
    """`Table.read`, of the share of this rank. Every rank must call this."""
    if world.size == 1:
        return table.read(names, types, verbatim, scratch)
    pieces = _csv_pieces(table, world) if table.is_csv else alike(world, lambda: _parquet_pieces(table, world))
    # A type that the first lines of a CSV suggest may not be that of all: whoever reads a file knows.
    own = {piece.file for piece in pieces} if table.is_csv else set(table.files)
    kinds = alike(world, lambda: {file: table.kinds(file, names, types) for file in table.files if file in own})
    everyones = _gathered_kinds(world, list(kinds.values())) if table.is_csv else list(kinds.values())
    schema = alike(world, lambda: table.unified(everyones))
    counts = dict.fromkeys(table.files, 0)

    def batches() -> Iterator[Any]:
        for piece in pieces:
            for batch in table.batches(piece.file, kinds[piece.file], verbatim, schema, piece.start, piece.stop):
                counts[piece.file] += len(batch)
                yield batch

    def read() -> pa.Table:
        if scratch.has_room(sum(expected_bytes(piece.file) for piece in pieces)):
            return pa.Table.from_batches(list(batches()), schema)
        return spooled(batches(), schema, scratch)

    found = alike(world, read)
    sums = total(world, torch.tensor(list(counts.values())), "rows").tolist()
    first = RowShares.of(world, len(found)).own.start
    return Rows(found, tuple(zip(table.files, sums, strict=True)), first)


def check_same_files(world: World, paths: Sequence[Path]) -> None:
    """Refuse files that are not the same on all hosts, naming the rank. Every rank must call this."""
    if world.size == 1:
        return
    own = together(world, lambda: {str(path): _size(path) for path in paths}, PartitionError)
    everyone = [json.loads(text) for text in gather_text(world, json.dumps(own))]
    for rank, theirs in enumerate(everyone):
        for name in sorted(set(theirs) ^ set(everyone[0])):
            lacking, having = (0, rank) if name in theirs else (rank, 0)
            _refuse(f"rank {lacking} has no {name}, which rank {having} has")
        for name, size in theirs.items():
            if size != everyone[0][name]:
                _refuse(f"{name} has {size:,} bytes for rank {rank} and {everyone[0][name]:,} for rank 0")


def _refuse(found: str) -> NoReturn:
    error = PartitionError(f"{found}: every host needs all files of the source")
    error.everywhere = True
    raise error


def _size(path: Path) -> int:
    with reading(path):
        return path.stat().st_size


@dataclass(frozen=True)
class _Piece:
    """Consecutive rows of a file, `stop` None for all."""

    file: Path
    start: int = 0
    stop: int | None = None


def _parquet_pieces(table: Table, world: World) -> list[_Piece]:
    """This rank's rows of all files."""
    counts = []
    for file in table.files:
        with reading(file):
            counts.append(pyarrow.parquet.read_metadata(file).num_rows)
    before = offsets(np.array(counts, np.int64))
    own = RowShares.equal(world, int(before[-1])).own
    pieces = []
    for file, start, count in zip(table.files, before[:-1].tolist(), counts, strict=True):
        first, stop = max(own.start - start, 0), min(own.stop - start, count)
        if first < stop:
            pieces.append(_Piece(file, first, stop))
    return pieces


def _csv_pieces(table: Table, world: World) -> list[_Piece]:
    """The files of this rank, of about as many bytes as those of the others: a line may be in the middle of a cell."""
    sizes = np.array([file.stat().st_size for file in table.files])
    middles = np.cumsum(sizes) - sizes / 2
    ranks = (middles * world.size // max(int(sizes.sum()), 1)).astype(np.int64)
    return [_Piece(file) for file, rank in zip(table.files, ranks, strict=True) if rank == world.rank]


def _gathered_kinds(world: World, kinds: Sequence[pa.Schema]) -> list[pa.Schema]:
    """The columns of the files of all ranks, in their order."""
    messages = pa.table({"columns": pa.array([kind.serialize().to_pybytes() for kind in kinds], pa.binary())})
    found = gathered(world, messages, Scratch())["columns"].to_pylist()
    return [pa.ipc.read_schema(pa.py_buffer(message)) for message in found]
