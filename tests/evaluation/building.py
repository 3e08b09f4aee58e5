"""Graphs on disk for the tests of evaluation, and what a model's own forward pass says about them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nfdist.config import AttentionConfig, ModelConfig, RelationConfig
from nfdist.evaluation.budget import Budget
from nfdist.evaluation.full import FullGraph
from nfdist.graph.relation import build_relations
from nfdist.graph.split import has_label
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw, Output
from nfdist.partitioning.ordering import order_edges
from nfdist.store.hops import Hops
from nfdist.store.source_graph import TRAIN, SourceGraph
from nfdist.store.store import Store
from nfdist.store.writing import write_partition
from nfdist.world import World
from tests.model.building import LABEL_INPUTS, OPTIONS, jittered
from tests.store.building import RECIPE, build_graph

OUTPUTS = 4
SMALL = Budget(held_bytes=0, work_bytes=8000)  # everything in files, a few rows at a time
LARGE = Budget(held_bytes=None, work_bytes=1 << 20)
KINDS = ("directed", "undirected", "sparse", "no edges")


def write_graph(
    directory: Path, kind: str, num_parts: int, assignment: npt.NDArray[np.integer[Any]] | None = None
) -> Path:
    """60 nodes, of which the last five are isolated and five before them hear only the first.

    A directed graph lists some edges twice and has some self-loops.
    """
    graph = build_graph(
        num_edges=0 if kind == "no edges" else 300, features="sparse" if kind == "sparse" else "float32"
    )
    sources, targets = (np.concatenate([ends, ends[:50]]) for ends in (graph.sources, graph.targets))
    if kind != "no edges":
        sources, targets = np.append(sources, np.zeros(5, int)), np.append(targets, np.arange(50, 55))
    if kind == "undirected":
        pairs = np.unique(np.stack([np.append(sources, targets), np.append(targets, sources)]), axis=1)
        sources, targets = pairs
    order = np.lexsort((sources, targets))
    indptr = np.searchsorted(targets[order], np.arange(graph.num_nodes + 1))
    if assignment is None:
        assignment = np.random.default_rng(9).integers(0, num_parts, graph.num_nodes)
    directed = kind != "undirected"
    write_partition(directory, graph, indptr, sources[order], assignment, num_parts, RECIPE, directed=directed)
    return directory


def weighted_graph() -> SourceGraph:
    """60 nodes whose edges weigh from nothing to a thousand, some of them listed again, the other way around or not."""
    graph, stream = build_graph(num_edges=200), np.random.default_rng(6)
    sources = np.concatenate([graph.sources, graph.sources[:40], graph.targets[20:70]])
    targets = np.concatenate([graph.targets, graph.targets[:40], graph.sources[20:70]])
    weights = 10 ** stream.uniform(-3, 3, len(sources)) * (stream.random(len(sources)) < 0.9)
    return replace(graph, sources=sources, targets=targets, weights=weights)


def write_weighted_graph(directory: Path, directed: bool, num_parts: int) -> Path:
    """The graph above on disk."""
    graph = weighted_graph()
    edges = order_edges(graph, directed)
    assert edges.weights is not None
    assignment = np.random.default_rng(9).integers(0, num_parts, graph.num_nodes)
    indptr, sources, weights = (column.numpy() for column in (edges.indptr, edges.sources, edges.weights))
    write_partition(directory, graph, indptr, sources, assignment, num_parts, RECIPE, directed, weights=weights)
    return directory


def weight_matrix(store: Store, directed: bool) -> Tensor:
    """What the edge s -> t of the weighted graph weighs, in row t by node id: the definition, an edge at a time."""
    graph = weighted_graph()
    assert graph.weights is not None
    place = store.node_ids(graph.original_ids).tolist()
    matrix = torch.zeros(store.num_nodes, store.num_nodes, dtype=torch.float64)
    for source, target, weight in zip(graph.sources.tolist(), graph.targets.tolist(), graph.weights, strict=True):
        matrix[place[target], place[source]] += weight
        if not directed:
            matrix[place[source], place[target]] += weight
    return matrix.fill_diagonal_(1).float().double()


@dataclass(frozen=True)
class Options:
    """The sections of a model, and whether it takes labels."""

    model: ModelConfig
    attention: AttentionConfig
    relation: RelationConfig
    label_inputs: bool = False

    @staticmethod
    def named(name: str) -> "Options":
        return Options(*OPTIONS[name], name in LABEL_INPUTS)

    def build(self, num_features: int, dtype: torch.dtype = torch.float64) -> NodeFormer:
        """A model in which every parameter matters."""
        sections = self.model, self.attention, self.relation
        net = NodeFormer(num_features, OUTPUTS, *sections, seed=3, label_inputs=self.label_inputs)
        return jittered(net).to(dtype).eval()


def forward(net: NodeFormer, store: Store, seed: int) -> Tensor:
    """Logits of the whole graph, by the model itself."""
    everyone = torch.arange(store.num_nodes)
    order, normalize = net.relation.num_patterns, net.relation.normalize
    heeded = net.relation.weights
    graph = store.induced(everyone, loops=heeded, weights=heeded)
    relations = build_relations(graph, order, normalize, torch.float64)
    with torch.no_grad():
        output: Output = net(store.take(everyone).double(), relations, evaluation_draw(net, store, seed))
    return output.logits


def evaluation_draw(net: NodeFormer, store: Store, seed: int) -> Draw:
    """That of the whole graph, with the labels of all training nodes and of no other, if the model takes any."""
    everyone = torch.arange(store.num_nodes)
    labels = store.labels(everyone)
    labels[store.split(everyone) != TRAIN] = -1
    assert 0 < int(has_label(labels).sum()) < store.num_nodes
    return Draw(seed, 0, everyone, None if net.label_input is None else labels)


def split_of_all(store: Store) -> Tensor:
    return store.split(torch.arange(store.num_nodes))


PAPER, TWO_HOPS = Options.named("paper's large graphs"), Options.named("defaults")
LABELED = Options.named("label inputs of a graph branch")
POWERS = Options.named("powers of order 3, feed-forward")


def full_graph(
    path: Path, options: Options, budget: Budget, world: World | None = None, dtype: torch.dtype = torch.float64
) -> FullGraph:
    store = Store.open(path)
    with patch.object(Budget, "within", lambda *_: budget):
        hops = Hops.open(store, options.relation.num_patterns, weighted=options.relation.weights)
        return FullGraph(store, hops, options.relation, world or World(), dtype=dtype)
