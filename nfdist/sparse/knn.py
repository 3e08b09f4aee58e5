"""Graphs made from features alone."""

from typing import Any

import torch

from nfdist.errors import ConfigError
from nfdist.sparse.adjacency import Adjacency


def knn_graph(features: Any, neighbors: int) -> Adjacency:
    """The k nearest nodes of every node by Euclidean distance, the node itself among them, in both directions.

    Features [n, f] are a tensor, an array or a scipy sparse matrix, which is never made dense.
    """
    from sklearn.neighbors import kneighbors_graph  # imported late: scikit-learn takes a second to load

    num_nodes = features.shape[0]
    if not 1 <= neighbors <= num_nodes:
        raise ConfigError(f"a k-NN graph of {num_nodes} nodes needs k between 1 and that, got {neighbors}")
    found = kneighbors_graph(features, neighbors, include_self=True).tocoo()
    sources, targets = torch.from_numpy(found.col).long(), torch.from_numpy(found.row).long()
    return Adjacency.from_edges(sources, targets, num_nodes).symmetrized()
