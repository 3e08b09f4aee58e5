"""Which nodes are for training, validation and testing in a run."""

import torch
from torch import Tensor

from nfdist.config import DataConfig, parse_fractions
from nfdist.store.source_graph import TRAIN, draw_split
from nfdist.store.store import GraphStore

NODES_AT_ONCE = 1 << 18


def split_of(store: GraphStore, data: DataConfig, seed: int, nodes_at_once: int = NODES_AT_ONCE) -> Tensor:
    """int8 [nodes], as stored or drawn from the seed among the labeled nodes. Every rank must call this."""
    everyone = torch.arange(store.num_nodes)
    if data.split == "stored":
        return store.split(everyone)
    labeled = torch.cat([has_label(store.labels(some)) for some in everyone.split(nodes_at_once)])
    return torch.from_numpy(draw_split(labeled.numpy(), parse_fractions("data.split", data.split, "stored"), seed))


def training_labels(store: GraphStore, split: Tensor, node_ids: Tensor) -> Tensor:
    """Labels [k] or [k, questions] of the training nodes among these, by the split [nodes] of a run; -1 for others."""
    return known_labels(store.labels(node_ids), split[node_ids] == TRAIN)


def known_labels(labels: Tensor, known: Tensor) -> Tensor:
    """Labels [n] or [n, questions] of the nodes that are `known` [n], and -1 for others."""
    return labels.where(known if labels.ndim == 1 else known[:, None], -1)


def has_label(labels: Tensor) -> Tensor:
    """Which nodes have a label, or for multi-label tasks an answer to any question: [n] of [n] or [n, questions]."""
    return labels >= 0 if labels.ndim == 1 else (labels >= 0).any(1)
