"""In-edges are what their definition says, however few rows pass at once."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nfdist.errors import PartitionError
from nfdist.partitioning import ordering
from nfdist.partitioning.ordering import order_edges
from nfdist.partitioning.workspace import Workspace
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.source_graph import SourceGraph
from tests.partitioning.small_memory import tiny_workspace
from tests.store.building import build_graph


def graph_with_copies(weighted: bool, num_edges: int = 400) -> SourceGraph:
    """Copies, edges that run both ways and self-loops; one pair is there more often than a batch has rows."""
    graph = build_graph(num_edges=num_edges)
    often = np.full(120, 3), np.full(120, 5)
    sources = np.concatenate([graph.sources, graph.sources[::2], graph.targets[::3], often[0]])
    targets = np.concatenate([graph.targets, graph.targets[::2], graph.sources[::3], often[1]])
    order = np.random.default_rng(1).permutation(len(sources))
    weights = np.random.default_rng(2).integers(0, 64, len(sources)) / 8 if weighted else None
    return replace(graph, sources=sources[order], targets=targets[order], weights=weights)


def defined(graph: SourceGraph, directed: bool) -> list[tuple[int, int, float]]:
    """Target, source and weight of every stored edge, one by one."""
    listed = list(zip(graph.targets.tolist(), graph.sources.tolist(), strict=True))
    totals: dict[Any, float] = {}
    for number, pair in enumerate(listed):
        key = pair if directed else frozenset(pair)
        totals[key] = totals.get(key, 0.0) + (0.0 if graph.weights is None else float(graph.weights[number]))
    stored = sorted(listed) if directed else sorted({*listed, *((source, target) for target, source in listed)})
    weigh = [1.0 if a == b else totals[(a, b) if directed else frozenset((a, b))] for a, b in stored]
    return [(*pair, weight) for pair, weight in zip(stored, weigh, strict=True)]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("tiny", [False, True])
def test_in_edges_are_as_defined(tmp_path: Path, directed: bool, weighted: bool, tiny: bool) -> None:
    graph = graph_with_copies(weighted)
    told: list[tuple[int, int]] = []
    with tiny_workspace(tmp_path) if tiny else nullcontext(Workspace.unlimited()) as workspace:
        found = order_edges(graph, directed, replace(workspace, told=lambda *done: told.append(done)))
    wanted = defined(graph, directed)
    assert list(zip(found.targets.tolist(), found.sources.tolist(), strict=True)) == [edge[:2] for edge in wanted]
    assert (found.weights is not None) == weighted
    if found.weights is not None:
        assert found.weights.tolist() == [weight for *_, weight in wanted]
    assert found.indptr.dtype == found.sources.dtype == torch.int32
    assert told[-1][0] == len(wanted)
    if not weighted and not directed:
        sources, targets = (torch.from_numpy(ends) for ends in (graph.sources, graph.targets))
        other = Adjacency.from_edges(sources, targets, graph.num_nodes)
        assert torch.equal(found.sources, other.symmetrized().sources)


def test_no_edges_and_too_many_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = build_graph()
    none = np.empty(0, np.int64)
    empty = order_edges(replace(graph, sources=none, targets=none), False)
    assert (empty.num_nodes, empty.num_edges) == (60, 0)
    monkeypatch.setattr(ordering, "MOST_NODES", 59)
    with pytest.raises(PartitionError, match="small has 60 nodes: one process orders at most 59"):
        order_edges(graph, False)
