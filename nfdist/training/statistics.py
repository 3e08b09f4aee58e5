"""Statistics of features over the training nodes: the constants that a model standardizes its inputs by."""

import torch
from torch import Tensor

from nfdist.collectives import total
from nfdist.store.store import GraphStore
from nfdist.world import World

NODES_AT_ONCE = 1 << 16
CONSTANT = 1e-12  # a variance below this share of the mean square is rounding: float32 inputs have 24 bits


def feature_statistics(
    store: GraphStore, trained: Tensor, world: World, nodes_at_once: int = NODES_AT_ONCE
) -> tuple[Tensor, Tensor]:
    """Mean and deviation [f] of the features of training nodes, in float64; a deviation of 0 where all are equal.

    Sparse features are words and the like, in one unit: they have one deviation, the root of their mean variance. By
    its own a rare one would count many times as much as a common one. `trained` [t] are the training nodes' ids, the
    same on every rank; the ranks divide them. Every rank must call this.
    """
    sums = torch.zeros(2, store.num_features, dtype=torch.float64)
    share = -(-len(trained) // world.size)
    own = trained[world.rank * share : (world.rank + 1) * share]
    for start in range(0, share, nodes_at_once):  # as often on every rank, since rows may come from the others
        rows = store.take(own[start : start + nodes_at_once])
        if rows.layout == torch.sparse_csr:
            values, columns = rows.values().double(), rows.col_indices().long()
            sums[0].index_add_(0, columns, values)
            sums[1].index_add_(0, columns, values.square())
        else:
            sums += torch.stack([rows.double().sum(0), rows.double().square().sum(0)])
    mean, mean_square = total(world, sums, "feature statistics") / max(len(trained), 1)
    variance = mean_square - mean.square()
    varies = variance > CONSTANT * mean_square
    if store.manifest.feature_kind == "sparse":
        variance = variance.clamp(min=0).mean().expand_as(variance)
    return mean, torch.where(varies, variance, 0.0).sqrt()
