"""Node features in one form: float32 or float16 rows, dense, or CSR where almost all entries are zero."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

from nfdist.collectives import total
from nfdist.errors import PartitionError
from nfdist.scratch import Scratch
from nfdist.store.arrow_files import integer_type
from nfdist.store.ranges import offsets
from nfdist.world import World

SPARSE_DENSITY = 0.1  # below this share of nonzeros, rows stay sparse
MOST_COLUMNS = 1 << 24  # the first layer has dozens of weights for each
_ROWS_AT_ONCE = 1 << 16


def prepare(features: Any, name: str, scratch: Scratch | None = None, world: World | None = None) -> Any:
    """Features [n, f] as float32, float16 where they were, or as a float32 CSR array where sparse and given so.

    The ranks of a world may have some rows each; then every rank must call this.
    """
    if getattr(features, "ndim", 0) != 2:
        raise PartitionError(f"{name}: features must be a table [nodes, columns], got shape {np.shape(features)}")
    if features.dtype.kind not in "fiub":
        raise PartitionError(f"{name}: features must be numbers, got {features.dtype}")
    if features.shape[1] == 0:
        raise PartitionError(f"{name}: features have no columns: NodeFormer needs at least one")
    if features.shape[1] > MOST_COLUMNS:
        raise PartitionError(f"{name}: features have {features.shape[1]:,} columns: give at most {MOST_COLUMNS:,}")
    if not scipy.sparse.issparse(features):
        return _as_float(features, scratch or Scratch())
    rows = scipy.sparse.csr_array(features)
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused as such with its node
        rows.data = rows.data.astype(np.float32, copy=False)
    rows.sum_duplicates()
    entries, num_rows = total(world or World(), torch.tensor([rows.nnz, rows.shape[0]]), "entries").tolist()
    return rows if keeps_sparse(entries, (num_rows, rows.shape[1])) else _dense(rows, scratch or Scratch())


def joined_rows(batches: Iterable[Any], width: int, scratch: Scratch) -> Any:
    """Rows of CSR arrays below one another, in `scratch`."""
    pieces, counts = [], []
    for batch in batches:
        counts.append(np.diff(batch.indptr))
        kept = scratch.array(batch.nnz, batch.indices.dtype), scratch.array(batch.nnz, batch.data.dtype)
        kept[0][:], kept[1][:] = batch.indices, batch.data
        pieces.append(kept)
    index_type = integer_type(max(width, sum(len(indices) for indices, _ in pieces)))
    indptr = offsets(np.concatenate(counts), index_type)
    indices = scratch.array(int(indptr[-1]), index_type)
    values = scratch.array(int(indptr[-1]), pieces[0][1].dtype)
    start = 0
    for some, numbers in pieces:
        place = slice(start, start + len(some))
        indices[place], values[place] = some, numbers
        start = place.stop
    return scipy.sparse.csr_array((values, indices, indptr), shape=(len(indptr) - 1, width))


def _dense(rows: Any, scratch: Scratch) -> NDArray[Any]:
    dense = scratch.array(rows.shape, rows.dtype)
    for start in range(0, len(dense), _ROWS_AT_ONCE):
        dense[start : start + _ROWS_AT_ONCE] = rows[start : start + _ROWS_AT_ONCE].toarray()
    return dense


def keeps_sparse(nonzeros: int, shape: tuple[int, int]) -> bool:
    """Whether rows that were given sparse stay so."""
    return nonzeros < SPARSE_DENSITY * shape[0] * shape[1]


def stored_dtype(dtype: np.dtype[Any]) -> str:
    """The type that dense features of a type are stored in."""
    return "float16" if dtype == np.float16 else "float32"


def _as_float(features: Any, scratch: Scratch) -> Any:
    if features.dtype in (np.float32, np.float16):
        return np.ascontiguousarray(features)
    converted = scratch.array(features.shape, np.float32)
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused as such with its node
        for start in range(0, len(features), _ROWS_AT_ONCE):
            converted[start : start + _ROWS_AT_ONCE] = features[start : start + _ROWS_AT_ONCE]
    return converted
