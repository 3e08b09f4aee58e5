"""Statistics of features over the training nodes: constants by which a model standardizes inputs and fills gaps."""

import torch
from torch import Tensor, nn

from nfdist.collectives import total
from nfdist.model.linear import standardize
from nfdist.model.protocol import Model
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import GraphStore
from nfdist.world import World

NODES_AT_ONCE = 1 << 16
CONSTANT = 1e-12  # a variance below this share of the mean square is rounding: float32 inputs have 24 bits


def feature_statistics(
    store: GraphStore, trained: Tensor, world: World, nodes_at_once: int = NODES_AT_ONCE
) -> tuple[Tensor, Tensor]:
    """Mean and deviation [f] of the features of training nodes, in float64; a deviation of 0 where all are equal.

    Sparse features of one column are words and the like, in one unit: they have one deviation, the root of their mean
    variance. By its own a rare one would count many times as much as a common one. Nodes that lack a feature, whose
    value is NaN, do not count for it. `trained` [t] are the training nodes' ids, the same on every rank; the ranks
    divide them. Every rank must call this.
    """
    sums = torch.zeros(3, store.num_features, dtype=torch.float64)
    share = -(-len(trained) // world.size)
    own = trained[world.rank * share : (world.rank + 1) * share]
    for start in range(0, share, nodes_at_once):  # as often on every rank, since rows may come from the others
        rows = store.take(own[start : start + nodes_at_once])
        if rows.layout == torch.sparse_csr:
            columns = rows.col_indices().long()
            for place, values in enumerate(_terms(rows.values())):
                sums[place].index_add_(0, columns, values)
        else:
            sums += torch.stack([values.sum(0) for values in _terms(rows)])
    first, second, gaps = total(world, sums, "feature statistics")
    counts = (len(trained) - gaps).clamp(min=1)
    mean, mean_square = first / counts, second / counts
    variance = mean_square - mean.square()
    varies = variance > CONSTANT * mean_square
    if store.manifest.feature_kind == "sparse":
        for column, features in store.manifest.schema.slices():
            if not column.may_have_gaps:  # so it is no number by itself
                variance[features] = variance[features].clamp(min=0).mean()
    return mean, torch.where(varies, variance, 0.0).sqrt()


def set_constants(model: Model, store: GraphStore, split: Tensor, world: World, *, scaled: bool) -> None:
    """Give a model what it needs to know of the training nodes, unless it came with its weights.

    Where its inputs are to be `scaled`, that is means and deviations; where there may be gaps, what these become.
    `split` [nodes] is that of the run. Every rank must call this.
    """
    gaps = store.manifest.schema.gap_features if model.feature_means is None else []
    if not (scaled or gaps):
        return
    mean, deviation = feature_statistics(store, (split == TRAIN).nonzero()[:, 0], world)
    if scaled:
        assert isinstance(model, nn.Module)
        standardize(model, mean, deviation)
    if gaps:
        means = torch.zeros_like(model.input.weight[0])
        means[gaps] = mean[gaps].to(means)
        model.feature_means = means


def _terms(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What values add to a sum, to a sum of squares and to the number of gaps."""
    values, gaps = values.double(), values.isnan()
    values = values.masked_fill(gaps, 0.0)
    return values, values.square(), gaps.double()
