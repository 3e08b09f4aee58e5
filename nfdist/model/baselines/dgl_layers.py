"""DGL's layers as the baselines use them: without their own linear maps, so that rows of features may be sparse."""

from typing import Any

import torch
from torch import nn

from nfdist.sparse.dgl_door import dgl_layers


def convolution(width: int, *, bias: bool = True) -> Any:
    """DGL's GraphConv without its weight: (graph, rows [n, width]) -> Â rows + bias, the degrees being the graph's."""
    return dgl_layers().GraphConv(width, width, norm="both", weight=False, bias=bias)


def attention(width: int, heads: int) -> Any:
    """DGL's GATConv behind its linear map: (graph, rows [n, h x width]) -> [n, h, width], weights by softmax."""
    with torch.random.fork_rng(devices=[]):  # DGL draws weights, which are drawn again by name
        layer = dgl_layers().GATConv(width, width, heads)
    layer.fc = nn.Identity()
    return layer


def joining(mode: str) -> Any:
    """DGL's JumpingKnowledge: a list of states [n, c] -> their concatenation ("cat") or largest entries ("max")."""
    return dgl_layers().JumpingKnowledge(mode)
