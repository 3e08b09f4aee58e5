"""The different texts of a column whose rows are with several ranks: each text is counted by the rank of its bytes."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from nfdist.collectives import exchange, largest, total
from nfdist.scratch import Scratch
from nfdist.store.columns import bytes_of
from nfdist.store.gathered import gathered
from nfdist.world import World

_VALUES_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class DifferentValues:
    """`count` texts, of which this rank has `values`: all of them where they are few."""

    world: World
    count: int
    own: Any
    values: Any

    @cached_property
    def words(self) -> int:
        """The words in all of them. Every rank must ask."""
        found = pc.sum(pc.count_substring_regex(self.own, r"\S+")).as_py() or 0
        return int(total(self.world, torch.tensor([found]), "words"))


def different_values(world: World, own: Any, few: int) -> DifferentValues:
    """The union of what all ranks have, each of which has no text twice. Every rank must call this."""
    if world.size == 1:
        return DifferentValues(world, len(own), own, own)
    schema = pa.schema([("value", own.type)])
    ranks = _ranks(own, world.size)
    outgoing = [own.filter(pa.array(ranks == rank)) for rank in range(world.size)]
    longest = int(largest(world, torch.tensor([max(map(len, outgoing))]), "values"))
    kept = own.slice(0, 0)
    for start in range(0, longest, _VALUES_AT_ONCE):
        messages = [_message(values.slice(start, _VALUES_AT_ONCE), schema) for values in outgoing]
        arrived = (
            pa.ipc.read_record_batch(pa.py_buffer(message.numpy()), schema).column(0)
            for message in exchange(world, messages, "values")
        )
        kept = pc.unique(pa.chunked_array([kept, *arrived]))
    count = int(total(world, torch.tensor([len(kept)]), "values"))
    values = kept
    if count <= few:
        values = gathered(world, pa.table([kept], schema), Scratch())["value"].combine_chunks()
    return DifferentValues(world, count, kept, values)


def _message(values: Any, schema: pa.Schema) -> torch.Tensor:
    batch = pa.record_batch([values], schema=schema)
    return torch.from_numpy(np.frombuffer(batch.serialize(), np.uint8).copy())


def _ranks(texts: Any, size: int) -> NDArray[np.int64]:
    """A rank for every text, by the sum of its bytes."""
    return np.concatenate([np.empty(0, np.int64), *_sums(texts)]) % size


def _sums(texts: Any) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(texts), _VALUES_AT_ONCE):
        some = texts.slice(start, _VALUES_AT_ONCE).cast(pa.large_string())
        ends = np.cumsum(pc.binary_length(some).to_numpy(zero_copy_only=False))
        sums = np.concatenate([[0], np.cumsum(bytes_of(some), dtype=np.int64)])
        yield np.diff(sums[ends], prepend=0)
