"""Columns that every rank has some rows of, on all ranks: they travel as Arrow's own messages, a batch at a time."""

from typing import Any

import numpy as np
import pyarrow as pa
import torch

from nfdist.collectives import gather, largest
from nfdist.scratch import Scratch
from nfdist.store.spooled import spooled
from nfdist.world import World

_ROWS_AT_ONCE = 1 << 16


def gathered(world: World, table: pa.Table, scratch: Scratch) -> pa.Table:
    """The rows of all ranks, in their order; all have the same columns. What has no room in memory lies in files.

    Every rank must call this.
    """
    if world.size == 1:
        return table
    own = table.to_batches(max_chunksize=_ROWS_AT_ONCE)
    rounds = int(largest(world, torch.tensor([len(own)]), "rows"))
    laid: list[list[Any]] = [[] for _ in range(world.size)]  # as views of files
    held: list[list[Any]] = [[] for _ in range(world.size)]
    held_bytes = 0
    for number in range(rounds):
        message = _message(own[number]) if number < len(own) else torch.empty(0, dtype=torch.uint8)
        for batches, content in zip(held, gather(world, message, "rows"), strict=True):
            if len(content):
                batches.append(pa.ipc.read_record_batch(pa.py_buffer(content.numpy()), table.schema))
                held_bytes += len(content)
        if not scratch.has_room(2 * held_bytes):
            for files, batches in zip(laid, held, strict=True):
                if batches:
                    files += spooled(batches, table.schema, scratch).to_batches()
                    batches.clear()
            held_bytes = 0
    pieces = [batch for rank in range(world.size) for batch in (*laid[rank], *held[rank])]
    return pa.Table.from_batches(pieces, table.schema)


def _message(batch: Any) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(batch.serialize(), np.uint8).copy())
