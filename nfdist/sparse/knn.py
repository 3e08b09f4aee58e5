"""Graphs made from features alone."""

import torch
from torch import Tensor

from nfdist.errors import ConfigError
from nfdist.sparse.adjacency import Adjacency


def knn_graph(features: Tensor, neighbors: int) -> Adjacency:
    """The k nearest nodes of every node by Euclidean distance, the node itself among them, in both directions."""
    from sklearn.neighbors import kneighbors_graph  # imported late: scikit-learn takes a second to load

    if not 1 <= neighbors <= len(features):
        raise ConfigError(f"a k-NN graph of {len(features)} nodes needs k between 1 and that, got {neighbors}")
    found = kneighbors_graph(features.numpy(), neighbors, include_self=True).tocoo()
    sources, targets = torch.from_numpy(found.col).long(), torch.from_numpy(found.row).long()
    return Adjacency.from_edges(sources, targets, len(features)).symmetrized()
