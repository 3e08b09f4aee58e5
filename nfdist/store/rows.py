"""Rows of several parts gathered into one tensor, in the order of the request."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdist.sparse.csr import sparse_csr
from nfdist.store.gate import Column
from nfdist.store.mapped import MappedPart, SparseRows
from nfdist.store.ranges import joined, offsets
from nfdist.store.threads import in_threads

ROWS_AT_ONCE = 1 << 14


class Group(NamedTuple):
    """Rows of one part and their positions in the request."""

    part: MappedPart
    positions: NDArray[np.int64]
    rows: NDArray[np.int64]


def dense_rows(
    node_ids: NDArray[np.int64],
    out: Tensor,
    grouped: Callable[[NDArray[np.int64]], list[Group]],
    column: Callable[[MappedPart], Column],
) -> Tensor:
    """Fill `out` with the rows of a column; `grouped` sorts node ids by part."""

    def fill(block: slice) -> None:
        # Gathered part by part, then put into the order of the request while still in the cache.
        gathered = np.empty_like(rows[block])
        places = np.empty(len(gathered), dtype=np.int64)
        start = 0
        for part, positions, part_rows in grouped(node_ids[block]):
            stop = start + len(part_rows)
            np.take(column(part).at(part_rows).numpy(), part_rows, axis=0, out=gathered[start:stop], mode="clip")
            places[positions] = np.arange(start, stop)
            start = stop
        np.take(gathered, places, axis=0, out=rows[block], mode="clip")

    rows = out.numpy()
    size = len(node_ids)
    in_threads(fill, [slice(start, min(start + ROWS_AT_ONCE, size)) for start in range(0, size, ROWS_AT_ONCE)])
    return out


def sparse_rows(groups: list[Group], num_rows: int, num_columns: int, dtype: torch.dtype) -> Tensor:
    """A sparse CSR tensor of the rows of all groups; the values of consecutive ones view the disk."""
    if len(groups) == 1 and all((np.diff(numbers) == 1).all() for numbers in groups[0][1:]):
        part, _, rows = groups[0]
        return sparse_slice(_sparse(part), slice(int(rows[0]), int(rows[-1]) + 1), num_columns)
    counts = np.zeros(num_rows, dtype=np.int64)
    held = [(_sparse(group.part), group.positions, group.rows) for group in groups]
    for features, positions, rows in held:
        indptr = features.indptr.at(rows, 2).numpy()
        counts[positions] = indptr[rows + 1] - indptr[rows]
    starts = offsets(counts)
    indices = torch.empty(int(starts[-1]), dtype=torch.int64)
    values = torch.empty(int(starts[-1]), dtype=dtype)
    for features, positions, rows in held:
        begun, lengths = features.indptr.at(rows).numpy()[rows].astype(np.int64), counts[positions]
        taken = torch.from_numpy(joined(begun, lengths))
        places = torch.from_numpy(joined(starts[:-1][positions], lengths))
        indices[places] = features.indices.at(begun, lengths)[taken].long()
        values[places] = features.values.at(begun, lengths)[taken]
    return sparse_csr(torch.from_numpy(starts), indices, values, (num_rows, num_columns))


def sparse_slice(features: SparseRows, rows: slice, num_columns: int) -> Tensor:
    """Consecutive rows as a sparse CSR tensor whose values view the disk."""
    indptr = features.indptr.rows(rows.start, rows.stop + 1).long()
    entries = int(indptr[0]), int(indptr[-1])
    shape = (rows.stop - rows.start, num_columns)
    return sparse_csr(indptr - indptr[0], features.indices.rows(*entries).long(), features.values.rows(*entries), shape)


def _sparse(part: MappedPart) -> SparseRows:
    assert isinstance(part.features, SparseRows)
    return part.features
