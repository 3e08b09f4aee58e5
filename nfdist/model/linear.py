"""Linear maps of a model's rows: features that may be sparse, and weights that are drawn by name."""

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.spmm import propagate

# Of sparse rows that are still in use: steps of a whole graph take the same ones, and transpose them once.
_ENTRIES = WeakTensorKeyDictionary()


class UndrawnLinear(nn.Linear):
    """A linear map whose weights are still to be drawn: torch's own start would use up the global random state."""

    def reset_parameters(self) -> None:
        """Leave the weights as they are."""


def embed(linear: nn.Linear, features: Tensor) -> Tensor:
    """A linear map of features [n, f], in the weights' own type even under autocast; rows may be sparse."""
    if features.layout != torch.sparse_csr:
        embedded: Tensor = linear(features)
        return embedded.to(linear.weight.dtype)
    embedded = sparse_product(features, linear.weight.t())
    return embedded if linear.bias is None else linear.bias + embedded


def sparse_product(rows: Tensor, table: Tensor) -> Tensor:
    """Sparse CSR rows [n, f] times a dense table [f, c]; only the table has a gradient, so none is of size [n, f]."""
    entries: Adjacency | None = _ENTRIES.get(rows)
    if entries is None:
        entries = _ENTRIES[rows] = Adjacency(rows.crow_indices(), rows.col_indices(), rows.shape[1])
    return propagate(entries, table, rows.values().to(table.dtype))
