"""METIS cuts few edges and balances what it can, through either of the libraries that bring it."""

import sys
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from nfdist import seeds
from nfdist.errors import ConfigError, PartitionError
from nfdist.sparse import metis as module
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.metis import metis, metis_library
from tests.needs import needs_dgl

CLUSTERS, SIZE = 8, 50
Call = Callable[[Adjacency, int, NDArray[np.int64]], NDArray[np.int64]]


def clusters() -> Adjacency:
    """Clusters of random edges in a ring, one edge from each to the next."""
    ends = torch.randint(SIZE, (2, CLUSTERS, 4 * SIZE), generator=seeds.generator(0, "ends"))
    first = SIZE * torch.arange(CLUSTERS)
    inner = (ends + first[:, None]).flatten(1)
    between = torch.stack([first, first.roll(-1)])
    sources, targets = torch.cat([inner, between], 1)
    return Adjacency.from_edges(sources, targets, CLUSTERS * SIZE).symmetrized()


def cut(graph: Adjacency, parts: NDArray[np.int64]) -> int:
    return int((parts[graph.sources] != parts[graph.targets]).sum()) // 2


def no_dgl() -> NoReturn:
    raise ConfigError("DGL cannot be imported")


@pytest.mark.parametrize(
    "call",
    [pytest.param(module._through_dgl, marks=needs_dgl, id="dgl"), pytest.param(module._through_pymetis, id="pymetis")],
)
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_few_edges_are_cut_and_parts_are_even(call: Call, kind: torch.dtype) -> None:
    graph = clusters()
    graph = Adjacency(graph.indptr.to(kind), graph.sources.to(kind))
    parts = call(graph, 4, np.ones((graph.num_nodes, 1), dtype=np.int64))
    assert cut(graph, parts) < 0.05 * cut(graph, np.arange(graph.num_nodes) % 4)
    assert np.bincount(parts) / graph.num_nodes == pytest.approx([0.25] * 4, abs=0.02)


def test_pymetis_balances_the_first_weight_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "dgl", no_dgl)
    graph = clusters()
    heavy = np.arange(graph.num_nodes) < SIZE
    weights = np.stack([np.where(heavy, 7, 1), 1 - heavy], 1).astype(np.int64)  # the first cluster weighs as the rest
    parts = metis(graph, 2, weights)
    assert np.bincount(parts, weights[:, 0]) / weights[:, 0].sum() == pytest.approx([0.5, 0.5], abs=0.03)
    assert "balances the nodes of parts; their edges and training nodes may be uneven" in capsys.readouterr().err
    metis(graph, 2, weights[:, :1])
    assert capsys.readouterr().err == ""


def test_without_either_library_one_line_names_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "dgl", no_dgl)
    assert metis_library() == "pymetis"
    monkeypatch.setitem(sys.modules, "pymetis", None)
    assert metis_library() is None
    with pytest.raises(PartitionError, match="pip install pymetis, or use --method stream"):
        metis(clusters(), 2, np.ones((CLUSTERS * SIZE, 1), dtype=np.int64))


def test_a_failure_of_metis_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def part_graph(*arguments: Any, **options: Any) -> NoReturn:
        raise RuntimeError("METIS_ERROR_MEMORY\nmore")

    monkeypatch.setattr("pymetis.part_graph", part_graph)
    with pytest.raises(PartitionError, match=r"METIS failed \(METIS_ERROR_MEMORY\): try --method stream$"):
        module._through_pymetis(clusters(), 2, np.ones((CLUSTERS * SIZE, 1), dtype=np.int64))
