"""What all ranks make of their rows reaches rank 0 a chunk at a time, and there a file that is whole or absent."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from nfdist import files
from nfdist.collectives import exchange, fail_together, gather, together
from nfdist.errors import CheckpointError, NfdistError
from nfdist.world import World

ROWS_AT_ONCE = 1 << 15
FEW_ROWS_AT_ONCE = 1 << 12  # where memory is very limited: a row is there several times until it is in a file

Piece = TypeVar("Piece")
Columns = dict[str, Any]


def rows_in_order(world: World, nodes: range, rows_at_once: int = ROWS_AT_ONCE) -> list[tuple[int, slice]]:
    """Which rank has which rows, a bounded number at a time, in the order of node ids. Every rank must call this."""
    bounds = gather(world, torch.tensor([[nodes.start, nodes.stop]]), "outputs")
    ranges = sorted((*bound[0].tolist(), rank) for rank, bound in enumerate(bounds))
    return [
        (rank, slice(row, min(row + rows_at_once, stop - start)))
        for start, stop, rank in ranges
        for row in range(0, stop - start, rows_at_once)
    ]


def write_gathered(
    world: World,
    pieces: Iterable[tuple[int, Piece]],
    make: Callable[[Piece], Tensor],
    write: Callable[[Tensor], None],
) -> None:
    """Write on rank 0 the bytes (uint8 [k], k > 0) of every piece, each made by the rank that is named with it.

    Every rank must call this with as many pieces of the same ranks; a mistake of one is raised on all, at the end, so
    that nobody waits for a rank that has left.
    """
    nothing = torch.empty(0, dtype=torch.uint8)
    mistake: NfdistError | None = None
    for owner, piece in pieces:
        outgoing = [nothing] * world.size
        try:
            if world.rank == owner and mistake is None:
                outgoing[0] = make(piece)
        except NfdistError as error:
            mistake = error
        arrived = exchange(world, outgoing, "outputs")[owner]
        try:
            if world.rank == 0 and mistake is None and len(arrived):
                write(arrived)
        except NfdistError as error:
            mistake = error
    fail_together(world, mistake, CheckpointError)


def write_gathered_table(
    path: Path, world: World, pieces: Iterable[tuple[int, Piece]], make: Callable[[Piece], Columns]
) -> None:
    """Write a Parquet file with the columns of every piece, a row group each. Every rank must call this."""
    with ExitStack() as stack:
        aside = together(world, lambda: stack.enter_context(replaced_output(path)) if world.rank == 0 else None)
        writers: list[Any] = []

        def write(content: Tensor) -> None:
            table = pa.ipc.open_stream(pa.py_buffer(content.numpy())).read_all()
            with files.disk_errors_as(CheckpointError, path):
                if not writers:
                    writers.append(stack.enter_context(pq.ParquetWriter(aside, table.schema, use_dictionary=False)))
                writers[0].write_table(table)

        write_gathered(world, pieces, lambda piece: _packed(make(piece)), write)


def write_table(path: Path, columns: Columns) -> None:
    """Write columns that this process has as a Parquet file."""
    with replaced_output(path) as aside:
        pq.write_table(pa.table(columns), aside)


@contextmanager
def replaced_output(path: Path) -> Iterator[Path]:
    """`files.replaced` for a file that an evaluation leaves."""
    with files.disk_errors_as(CheckpointError, path), files.replaced(path) as aside:
        yield aside


def _packed(columns: Columns) -> Tensor:
    """Columns as the bytes of an Arrow stream."""
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return torch.frombuffer(bytearray(memoryview(sink.getvalue())), dtype=torch.uint8)
