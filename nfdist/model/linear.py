"""Linear maps of a model's rows: features that may be sparse, and weights that are drawn by name."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from nfdist import seeds
from nfdist.model.epilogue import Dropout
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.spmm import propagate

# Of sparse rows that are still in use: steps of a whole graph take the same ones, and transpose them once.
_ENTRIES = WeakTensorKeyDictionary()


class UndrawnLinear(nn.Linear):
    """A linear map whose weights are still to be drawn: torch's own start would use up the global random state."""

    def reset_parameters(self) -> None:
        """Leave the weights as they are."""


class InputLinear(UndrawnLinear):
    """The first linear map of a model, W ((x - μ) / σ) + b of features [n, f], which may be sparse rows.

    μ and 1 / σ are `center` and `scale` [f], by default 0 and 1: constants of the training nodes, stored with the
    weights. A scale of 0 leaves a feature out. Without `standardize` there are none. Dropout is of x - μ or, where rows
    are sparse, of their entries.
    """

    center: Tensor
    scale: Tensor

    def __init__(self, num_features: int, width: int, *, bias: bool = True, standardize: bool = False) -> None:
        super().__init__(num_features, width, bias=bias)
        self.standardize = standardize
        if standardize:
            self.register_buffer("center", torch.zeros(num_features))
            self.register_buffer("scale", torch.ones(num_features))

    def set_statistics(self, mean: Tensor, deviation: Tensor) -> None:
        """Take over the statistics [f] of the training nodes; what does not vary among them counts for nothing."""
        self.center.copy_(mean)
        self.scale.copy_(torch.where(deviation > 0, 1 / deviation, 0.0))

    def forward(self, features: Tensor, dropout: Dropout | None = None) -> Tensor:
        """In the weights' own type, even under autocast."""
        return self.product(self.prepare(features, dropout))

    def prepare(self, features: Tensor, dropout: Dropout | None = None) -> "PreparedRows":
        """What the product takes: the same for all inputs of a model, and as large as the features."""
        if features.layout == torch.sparse_csr:
            return _prepare_sparse(features, dropout)
        rows = features - self.center if self.standardize else features
        if dropout is None:
            return PreparedRows(rows)
        keep, factor = dropout.mask(slice(None), rows)
        drop = keep.logical_not_()
        return PreparedRows(
            rows.masked_fill_(drop, 0) if self.standardize else rows.masked_fill(drop, 0), factor=factor
        )

    def product(self, rows: "PreparedRows") -> Tensor:
        """W of prepared rows, and b."""
        weight = self.weight * self.scale if self.standardize else self.weight
        dropped = weight if rows.factor == 1 else weight * rows.factor
        if rows.entries is None:
            return F.linear(rows.values, dropped, self.bias).to(self.weight.dtype)
        embedded = propagate(rows.entries, dropped.t(), rows.values.to(dropped.dtype))
        if self.standardize:  # the same for every row: these stay sparse
            embedded = embedded - weight @ self.center
        return embedded if self.bias is None else self.bias + embedded


@dataclass(frozen=True)
class PreparedRows:
    """Features [n, f], centered and dropped, or with `entries` the values of sparse ones; all are to be times `factor`.

    Sparse rows are not centered: their product is.
    """

    values: Tensor
    entries: Adjacency | None = None
    factor: float = 1.0


def standardize(model: nn.Module, mean: Tensor, deviation: Tensor) -> None:
    """Give all inputs of a model the statistics [f] of the training nodes."""
    for module in model.modules():
        if isinstance(module, InputLinear):
            module.set_statistics(mean, deviation)


def _prepare_sparse(rows: Tensor, dropout: Dropout | None) -> PreparedRows:
    if dropout is None:
        return PreparedRows(rows.values(), _entries(rows))
    lengths, entries_there = rows.crow_indices().diff(), rows.col_indices().numel()
    node_ids = dropout.node_ids.repeat_interleave(lengths, output_size=entries_there)
    keep = seeds.keep_pairs(
        dropout.key, node_ids, rows.col_indices().long(), dropout.rate
    )  # by ids of node and feature
    return PreparedRows(rows.values() * keep, _entries(rows), dropout.factor)


def sparse_product(rows: Tensor, table: Tensor) -> Tensor:
    """Sparse CSR rows [n, f] times a dense table [f, c]; only the table has a gradient, so none is of size [n, f]."""
    return propagate(_entries(rows), table, rows.values().to(table.dtype))


def _entries(rows: Tensor) -> Adjacency:
    """Where sparse CSR rows [n, f] have values."""
    entries: Adjacency | None = _ENTRIES.get(rows)
    if entries is None:
        entries = _ENTRIES[rows] = Adjacency(rows.crow_indices(), rows.col_indices(), rows.shape[1])
    return entries
