"""Which nodes are for training, validation and testing in a run."""

import torch
from torch import Tensor

from nfdist.config import DataConfig, parse_fractions
from nfdist.store.source_graph import draw_split
from nfdist.store.store import GraphStore

NODES_AT_ONCE = 1 << 18


def split_of(store: GraphStore, data: DataConfig, seed: int, nodes_at_once: int = NODES_AT_ONCE) -> Tensor:
    """int8 [nodes], as stored or drawn from the seed among the labeled nodes. Every rank must call this."""
    everyone = torch.arange(store.num_nodes)
    if data.split == "stored":
        return store.split(everyone)
    labeled = torch.cat([has_label(store.labels(some)) for some in everyone.split(nodes_at_once)])
    return torch.from_numpy(draw_split(labeled.numpy(), parse_fractions("data.split", data.split, "stored"), seed))


def has_label(labels: Tensor) -> Tensor:
    """Which nodes have a label, or for multi-label tasks an answer to any question: [n] of [n] or [n, questions]."""
    return labels >= 0 if labels.ndim == 1 else (labels >= 0).any(1)
