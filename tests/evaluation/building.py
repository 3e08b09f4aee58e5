"""Graphs on disk for the tests of evaluation, and what a model's own forward pass says about them."""

from dataclasses import dataclass
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
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw, Output
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.store.writing import write_partition
from nfdist.world import World
from tests.model.building import OPTIONS, jittered
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


@dataclass(frozen=True)
class Options:
    """The sections of a model."""

    model: ModelConfig
    attention: AttentionConfig
    relation: RelationConfig

    def build(self, num_features: int, dtype: torch.dtype = torch.float64) -> NodeFormer:
        """A model in which every parameter matters."""
        net = NodeFormer(num_features, OUTPUTS, self.model, self.attention, self.relation, seed=3)
        return jittered(net).to(dtype).eval()


def forward(net: NodeFormer, store: Store, seed: int) -> Tensor:
    """Logits of the whole graph, by the model itself."""
    everyone = torch.arange(store.num_nodes)
    order, normalize = net.relation.order, net.relation.normalize
    relations = build_relations(store.induced(everyone), order, normalize, torch.float64)
    with torch.no_grad():
        output: Output = net(store.take(everyone).double(), relations, Draw(seed, 0, everyone))
    return output.logits


PAPER, TWO_HOPS = Options(*OPTIONS["paper's large graphs"]), Options(*OPTIONS["defaults"])


def full_graph(
    path: Path, options: Options, budget: Budget, world: World | None = None, dtype: torch.dtype = torch.float64
) -> FullGraph:
    store = Store.open(path)
    with patch.object(Budget, "within", lambda *_: budget):
        return FullGraph(
            store, Hops.open(store, options.relation.order), options.relation, world or World(), dtype=dtype
        )
