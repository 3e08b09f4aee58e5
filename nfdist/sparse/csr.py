"""Torch's own sparse matrices."""

import warnings
from threading import Lock
from typing import Any

import torch
from torch import Tensor

_quiet = Lock()  # the filters of warnings are those of all threads


def sparse_csr(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A sparse CSR tensor, without torch's warning that these are new and without its checks."""
    with _quiet, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(indptr, indices, values, shape, check_invariants=False)


def as_tensor(rows: Any) -> Tensor:
    """A numpy array or, as a sparse CSR tensor, a scipy.sparse CSR array."""
    if not hasattr(rows, "indptr"):
        return torch.from_numpy(rows)
    indptr, indices, values = map(torch.from_numpy, (rows.indptr, rows.indices, rows.data))
    return sparse_csr(indptr.long(), indices.long(), values, rows.shape)
