"""Models in which every parameter matters, with every option of NodeFormer."""

from dataclasses import replace
from typing import TypeVar

import torch
from torch import nn

from nfdist import seeds
from nfdist.config import AttentionConfig, ModelConfig, RelationConfig
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw
from nfdist.sparse.adjacency import Adjacency

Net = TypeVar("Net", bound=nn.Module)

MODEL = ModelConfig(layers=2, channels=8, heads=2, random_features=12)
ATTENTION = AttentionConfig(noise_draws=3)
RELATION = RelationConfig(order=2)

OPTIONS = {
    "defaults": (MODEL, ATTENTION, RELATION),
    "one head, one layer": (replace(MODEL, heads=1, layers=1), ATTENTION, RELATION),
    "paper's large graphs": (
        replace(MODEL, layers=3, heads=1, activation="elu", jumping_knowledge=True),
        ATTENTION,
        RelationConfig(order=1, gate="identity"),
    ),
    "no norm, no residual": (replace(MODEL, norm="none", residual=False), ATTENTION, RELATION),
    "dropout": (replace(MODEL, dropout=0.5), ATTENTION, RELATION),
    "dropout without ELU and norm": (replace(MODEL, dropout=0.3, norm="none"), ATTENTION, RELATION),
    "dropout of features": (replace(MODEL, input_dropout=0.4, graph_layers=1), ATTENTION, RELATION),
    "no graph": (MODEL, ATTENTION, RelationConfig(order=0)),
    "no graph, no residual": (replace(MODEL, residual=False), ATTENTION, RelationConfig(order=0)),
    "order 3, unnormalized": (MODEL, ATTENTION, RelationConfig(order=3, normalize=False)),
    "edge loss alone": (MODEL, ATTENTION, RelationConfig(order=2, gate="none")),
    "softmax at 1.0": (MODEL, AttentionConfig(kind="softmax", temperature=1.0), RELATION),
    "softmax at 0.25": (MODEL, AttentionConfig(kind="softmax"), RELATION),
    "graph branch": (
        replace(MODEL, graph_layers=2, branch_share=0.3, activation="elu", jumping_knowledge=True),
        ATTENTION,
        RELATION,
    ),
    "learned share, dropout, no norm": (
        replace(MODEL, graph_layers=1, branch_share=0.0, dropout=0.5, norm="none"),
        ATTENTION,
        replace(RELATION, order=1, gate="none"),
    ),
    "feed-forward": (replace(MODEL, feed_forward=3, dropout=0.4, jumping_knowledge=True), ATTENTION, RELATION),
    "feed-forward without norm, with ELU": (
        replace(MODEL, feed_forward=1, norm="none", activation="elu"),
        ATTENTION,
        replace(RELATION, order=1),
    ),
    "heads by their mean": (replace(MODEL, heads=3, join_heads="mean", dropout=0.5), ATTENTION, RELATION),
    "powers": (MODEL, ATTENTION, replace(RELATION, kind="power")),
    "powers of order 3, feed-forward": (
        replace(MODEL, feed_forward=1, dropout=0.5),
        ATTENTION,
        replace(RELATION, order=3, kind="power", gate="identity"),
    ),
    "unnormalized powers": (MODEL, ATTENTION, replace(RELATION, kind="power", normalize=False)),
    "epsilon": (MODEL, replace(ATTENTION, epsilon=1e-6), RELATION),
    "label inputs": (replace(MODEL, dropout=0.5), ATTENTION, RELATION),
    "graph branch without a residual": (
        replace(MODEL, graph_layers=2, branch_share=0.6, branch_residual=False, dropout=0.5),
        ATTENTION,
        RELATION,
    ),
    "graph branch without a residual or norm": (
        replace(MODEL, graph_layers=1, branch_residual=False, norm="none"),
        ATTENTION,
        RELATION,
    ),
    "label inputs of a graph branch": (replace(MODEL, graph_layers=1, norm="none"), ATTENTION, RELATION),
}
LABEL_INPUTS = ("label inputs", "label inputs of a graph branch")  # the options that take labels

NODES, FEATURES, OUTPUTS = 43, 9, 5
GRAPH_ENDS = torch.randint(NODES, (2, 120), generator=seeds.generator(0, "graph"))
GRAPH = Adjacency.from_edges(GRAPH_ENDS[0], GRAPH_ENDS[1], NODES)


def jittered(net: Net) -> Net:
    """A model, in float64, whose gates no longer start equal, nor its biases at 0 and its norms as the identity."""
    net.double()
    with torch.no_grad():
        for index, parameter in enumerate(net.parameters()):
            generator = seeds.generator(index, "jitter")
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return net


def build(options: str) -> NodeFormer:
    model, attention, relation = OPTIONS[options]
    net = NodeFormer(FEATURES, OUTPUTS, model, attention, relation, seed=3, label_inputs=options in LABEL_INPUTS)
    return jittered(net)


def inputs() -> tuple[torch.Tensor, Draw]:
    features = torch.randn(NODES, FEATURES, generator=seeds.generator(1, "features"), dtype=torch.float64)
    return features, Draw(seed=4, step=17, node_ids=torch.randperm(1000, generator=seeds.generator(2, "ids"))[:NODES])


def given_labels(*shape: int) -> torch.Tensor:
    """Of two fifths of the nodes a class, the last of which nobody has, or some of the answers; one node has all."""
    labels = torch.randint(2 if len(shape) > 1 else OUTPUTS - 1, shape, generator=seeds.generator(6, "labels"))
    labels[torch.rand(shape, generator=seeds.generator(7, "given")) < 0.6] = -1
    labels[3] = 1
    return labels
