"""Sums over edges are the product with the dense matrix, whatever relation the model has, in memory or in files."""

from functools import partial
from pathlib import Path

import pytest
import torch

from nfdist import seeds
from nfdist.config import RelationConfig
from nfdist.evaluation.evaluation_graph import EvaluationGraph
from nfdist.evaluation.in_memory import InMemoryGraph
from nfdist.evaluation.propagation import Propagation
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.world import World
from tests.comparing import difference
from tests.evaluation.building import LARGE, PAPER, SMALL, Options, full_graph, write_graph
from tests.evaluation.dense_smoothing import normalized_edges

KINDS = ("directed", "undirected", "no edges")
RELATIONS = (
    RelationConfig(order=0),
    RelationConfig(order=1),
    RelationConfig(order=2),
    RelationConfig(order=1, normalize=False),
)
WIDTHS = (1, 3, 9)
ROWS = torch.randn(60, max(WIDTHS), generator=seeds.generator(0, "rows"), dtype=torch.float64)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    for kind in KINDS:
        write_graph(folder / kind, kind, 3)
    return folder


def propagations(world: World, path: Path) -> list[Propagation]:
    store = Store.open(path)
    in_memory = InMemoryGraph(store, Hops.open(store, 1), RelationConfig(order=1), world, torch.float64)
    graphs: list[EvaluationGraph] = [
        full_graph(path, Options(PAPER.model, PAPER.attention, relation), budget, world)
        for relation, budget in zip(RELATIONS, (SMALL, LARGE, SMALL, SMALL), strict=True)
    ]
    graphs.append(in_memory)
    assert all(graph.propagation() is graph.propagation() for graph in graphs)
    return [graph.propagation() for graph in graphs]


def products(world: World, graphs: Path) -> list[list[list[float]]]:
    """Two products of this rank's rows, for every graph and width."""
    found = []
    for kind in KINDS:
        for propagation in propagations(world, graphs / kind):
            nodes = propagation.nodes
            for width in WIDTHS:
                once, twice = propagation.states(width), propagation.states(width)
                mine = ROWS[nodes.start : nodes.stop, :width]
                propagation.put(once, mine.__getitem__, width)
                assert difference(propagation.load(once, slice(0, len(nodes)), width), mine) < 1e-10
                propagation.put(twice, partial(propagation.sums, once, width=width), width)
                found.append(propagation.sums(twice, slice(0, len(nodes)), width).tolist())
    return found


def test_they_are_the_dense_products(graphs: Path) -> None:
    found = products(World(), graphs)
    index = 0
    for kind in KINDS:
        edges = normalized_edges(Store.open(graphs / kind))
        for _ in range(len(RELATIONS) + 1):
            for width in WIDTHS:
                rows = torch.tensor(found[index], dtype=torch.float64)
                assert difference(rows, edges @ edges @ ROWS[:, :width]) < 1e-10, (kind, index)
                index += 1
    assert index == len(found)
