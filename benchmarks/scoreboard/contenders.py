"""What a user might take instead of nfdist: small trainings over the public interfaces of other libraries.

Each has a `step`, a training step as usual for it, and `answers`, the class of every node, or of those that are asked
for where it does not evaluate whole graphs. All are as wide as the NodeFormer of the configuration; other settings are
those of the libraries' own examples for graphs of this kind. Two take batches of nodes, and get the very batches that
nfdist would make.
"""

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from contender_graph import ContenderGraph
from torch import Tensor, nn

from nfdist.config import Config
from nfdist.evaluation.full import FullGraph
from nfdist.graph.graph import Graph
from nfdist.graph.relation import Relation
from nfdist.graph.split import split_of
from nfdist.rendezvous import Place
from nfdist.sparse.dgl_door import dgl, dgl_layers
from nfdist.store.hops import Hops
from nfdist.training.samplers import make_sampler
from nfdist.training.sampling import Position, Sampler
from nfdist.world import World

sys.path.append(str(Path(__file__).parents[1]))
from evaluate import TranscribedEvaluation
from train import Plain

LAYERS, DROPOUT = 3, 0.5
FANOUTS, SEED_NODES = (15, 10, 5), 1024  # from the last layer's neighbors to the first's, reversed for DGL
SEED = 0


class Contender(Protocol):
    def step(self) -> int:
        """Train once; how many nodes took part."""

    def answers(self, sampled: bool) -> Tensor:
        """The class of every node; where `sampled`, those of valid and test nodes are enough."""


class Convolutions(nn.Module):
    """Layers of DGL with ReLU and dropout between them."""

    def __init__(self, graph: ContenderGraph, channels: int, kind: Any, **options: Any) -> None:
        super().__init__()
        self.first = graph.first_layer(channels)
        widths = [self.first.width, *[channels] * (LAYERS - 1), graph.num_classes]
        self.layers = nn.ModuleList(kind(left, right, **options) for left, right in pairwise(widths))

    def forward(self, graphs: list[Any], rows: Any) -> Tensor:
        hidden: Tensor = self.first(rows)
        for number, (layer, graph) in enumerate(zip(self.layers, graphs, strict=True)):
            hidden = layer(graph, hidden)
            if number < LAYERS - 1:
                hidden = F.dropout(F.relu(hidden), DROPOUT, self.training)
        return hidden


class GraphSAGE:
    """DGL's SAGEConv with its neighbor sampler and loader; evaluated layer by layer on the whole graph."""

    def __init__(self, graph: ContenderGraph, config: Config) -> None:
        self.graph, self.edges = graph, graph.dgl_graph(loops=False)
        self.model = Convolutions(graph, config.model.channels, dgl_layers().SAGEConv, aggregator_type="mean")
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, weight_decay=5e-4)
        self.batches = self._batches()

    def _loader(self, nodes: Tensor, shuffle: bool) -> Any:
        loading = dgl().dataloading
        sampler = loading.NeighborSampler([*reversed(FANOUTS)])
        return loading.DataLoader(self.edges, nodes.int(), sampler, batch_size=SEED_NODES, shuffle=shuffle)

    def _batches(self) -> Iterator[Any]:
        while True:
            yield from self._loader(self.graph.train, True)

    def step(self) -> int:
        inputs, seeds, blocks = next(self.batches)
        self.model.train()
        loss = F.cross_entropy(self.model(blocks, self.graph.take(inputs.long())), self.graph.labels[seeds.long()])
        descend(loss, self.optimizer)
        return len(seeds)

    @torch.no_grad()
    def answers(self, sampled: bool) -> Tensor:
        self.model.eval()
        if not sampled:
            logits: Tensor = self.model([self.edges] * LAYERS, self.graph.rows)
            return logits.argmax(1)
        found = torch.full((self.graph.num_nodes,), -1)
        for inputs, seeds, blocks in self._loader(torch.cat([self.graph.valid, self.graph.test]), False):
            found[seeds.long()] = self.model(blocks, self.graph.take(inputs.long())).argmax(1)
        return found


class GCN:
    """DGL's GraphConv on the whole graph, each step an epoch."""

    def __init__(self, graph: ContenderGraph, config: Config) -> None:
        self.graph, self.edges = graph, graph.dgl_graph(loops=True)
        self.edges.create_formats_()
        self.model = Convolutions(graph, config.model.channels, dgl_layers().GraphConv)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)

    def step(self) -> int:
        self.model.train()
        logits = self.model([self.edges] * LAYERS, self.graph.rows)
        descend(F.cross_entropy(logits[self.graph.train], self.graph.labels[self.graph.train]), self.optimizer)
        return self.graph.num_nodes

    @torch.no_grad()
    def answers(self, sampled: bool) -> Tensor:
        self.model.eval()
        logits: Tensor = self.model([self.edges] * LAYERS, self.graph.rows)
        return logits.argmax(1)


class SGFormer(nn.Module):
    """PyG's SGFormer, one layer of attention and as many convolutions as usual, on nfdist's batches.

    The whole graph is one sparse matrix to it, normalized once, as PyG advises: edge by edge it would need the states
    of both ends of every edge at a time.
    """

    def __init__(self, graph: ContenderGraph, config: Config) -> None:
        super().__init__()
        from torch_geometric.nn.models import SGFormer as Net  # of the extra "scoreboard"

        self.graph, self.sampler, self.position = graph, sampler_of(config), Position()
        self.first = graph.first_layer(config.model.channels)
        self.net = Net(self.first.width, config.model.channels, graph.num_classes, trans_num_layers=1)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        self.trains = torch.zeros(graph.num_nodes, dtype=torch.bool).index_fill_(0, graph.train, True)

    def step(self) -> int:
        (nodes, *_), self.position = self.sampler.take(self.position)
        edges = self.graph.store.induced(nodes)
        edge_index = torch.stack([edges.sources, edges.targets]).long()
        self.train()
        logits = self.net(self.first(self.graph.take(nodes)), edge_index, torch.zeros_like(nodes))
        labeled = self.trains[nodes]
        descend(F.nll_loss(logits[labeled], self.graph.labels[nodes][labeled]), self.optimizer)
        return len(nodes)

    @torch.no_grad()
    def answers(self, sampled: bool) -> Tensor:
        self.eval()
        self._normalizes(False)
        try:
            one_graph = torch.zeros(self.graph.num_nodes, dtype=torch.int64)
            logits: Tensor = self.net(self.first(self.graph.rows), self.graph.normalized, one_graph)
        finally:
            self._normalizes(True)
        return logits.argmax(1)

    def _normalizes(self, whether: bool) -> None:
        for convolution in self.net.graph_conv.convs:
            convolution.normalize = whether


class Transcribed:
    """The published NodeFormer in its matrix formulation, all edges masked for each batch."""

    def __init__(self, graph: ContenderGraph, config: Config) -> None:
        self.graph, self.position = graph, Position()
        self.plain = Plain(config, sampler_of(config))
        self.config = config

    def step(self) -> int:
        (nodes, *_), after = self.plain.sampler.take(self.position)
        self.plain.model.train()
        # Numbers of batches that nfdist's own draws belong to are for comparing losses, which costs time.
        self.plain.step(nodes, self.position.batch + 1000)
        self.position = after
        return len(nodes)

    @torch.no_grad()
    def answers(self, sampled: bool) -> Tensor:
        relation = Relation.build(self.graph.store.induced(self.graph.everyone, loops=True))
        whole = TranscribedEvaluation(self.plain.model.eval(), relation)
        return whole.logits(self.plain.features, SEED).argmax(1)

    def answers_by_nfdist(self) -> Tensor:
        """By nfdist's evaluation of the same weights."""
        store = self.graph.store
        full = FullGraph(store, Hops.open(store, 1), self.config.relation, World())
        return full.evaluate(self.plain.model.eval(), SEED).logits.argmax(1)


CONTENDERS: dict[str, Any] = {
    "transcription": Transcribed,
    "GraphSAGE": GraphSAGE,
    "GCN": GCN,
    "SGFormer": SGFormer,
}


def sampler_of(config: Config) -> Sampler:
    graph = Graph.open(config, Place(), World())
    return make_sampler(config, graph, split_of(graph.store, config.data, SEED), 1, SEED)


def descend(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
