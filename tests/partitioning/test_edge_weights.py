"""Weights of edges come from every kind of source to the store as their definition says, or are refused in a line."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

from nfdist.errors import PartitionError
from nfdist.partitioning.ordering import order_edges
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.store.manifest import Manifest
from nfdist.store.store import Store
from tests.evaluation.building import weight_matrix, weighted_graph, write_weighted_graph

STORED = "edge weights are stored, and used only where relation.weights=true asks for them"
EDGES = {"source": ["a", "b", "b", "c", "a"], "target": ["b", "a", "a", "c", "c"]}
WEIGHTS = [0.5, 2.0, 0.25, 7.0, 0.0]
# Row t, column s: a self-loop weighs 1, whatever is listed.
DIRECTED = [[1, 2.25, 0, 0], [0.5, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
BOTH_WAYS = [[1, 2.75, 0, 0], [2.75, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


def write_tables(folder: Path, suffix: str, **columns: Any) -> Path:
    folder.mkdir()
    nodes = pa.table({"id": list("abcd"), "x": [1.0, 2.0, 3.0, 4.0], "label": [0, 1, 0, 1]})
    for name, table in (("nodes", nodes), ("edges", pa.table({**EDGES, **columns}))):
        write: Any = pq.write_table if suffix == "parquet" else pyarrow.csv.write_csv
        write(table, folder / f"{name}.{suffix}")
    return folder


def write_npz(folder: Path, **arrays: Any) -> Path:
    folder.mkdir()
    ends = np.array([["abcd".index(name) for name in EDGES[end]] for end in ("source", "target")])
    np.savez(folder / "graph.npz", edge_index=ends, feat=np.ones((4, 2)), label=[0, 1, 0, 1], **arrays)
    return folder / "graph.npz"


def partitioned(source: Path, out: Path, directed: bool = False, parts: int = 2) -> Store:
    partition(Recipe(str(source), parts=parts, out=str(out), method="random", directed=directed))
    return Store.open(out)


def stored_matrix(store: Store) -> list[list[float]]:
    """Row t, column s, in the order of the ids."""
    everyone = torch.arange(store.num_nodes)
    order = torch.from_numpy(np.argsort(store.original_ids(everyone)))
    graph = store.induced(order, loops=True, weights=True)
    assert graph.weights is not None
    matrix = torch.zeros(store.num_nodes, store.num_nodes)
    matrix[graph.targets.long(), graph.sources.long()] = graph.weights
    return matrix.tolist()


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("kind", ["parquet", "csv", "npz"])
def test_every_source_gives_its_weights(
    kind: str, directed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "npz":
        source = write_npz(tmp_path / "source", edge_weight=np.array(WEIGHTS))
    else:
        source = write_tables(tmp_path / "source", kind, weight=WEIGHTS)
    store = partitioned(source, tmp_path / "out", directed)
    assert store.manifest.weighted
    assert stored_matrix(store) == (DIRECTED if directed else BOTH_WAYS)
    said = capsys.readouterr().err
    assert STORED in " ".join(said.split())
    assert "dropped edge columns" not in said
    assert store.num_edges == 5  # an edge that weighs nothing is one, too
    store.manifest.verify(tmp_path / "out")


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("parts", [1, 3])
def test_the_stored_weights_are_those_of_the_definition(directed: bool, parts: int, tmp_path: Path) -> None:
    store = Store.open(write_weighted_graph(tmp_path / "p", directed, parts))
    everyone = torch.arange(store.num_nodes)
    wanted = weight_matrix(store, directed)
    for nodes, sources in ((everyone, None), (everyone.flip(0)[5:40], None), (everyone[20:30], everyone[7:50].flip(0))):
        found = store.induced(nodes, sources, loops=True, weights=True, at_once=7)
        assert found.weights is not None
        assert found.weights.dtype == torch.float32
        rows, columns = nodes[found.targets.long()], (nodes if sources is None else sources)[found.sources.long()]
        assert torch.equal(found.weights.double(), wanted[rows, columns])
        plain = store.induced(nodes, sources, loops=True)
        assert torch.equal(plain.sources, found.sources)
        assert plain.weights is None
    if not directed:
        whole = store.induced(everyone, weights=True)
        assert whole.weights is not None
        assert torch.equal(whole.weights[whole.transposed[1]], whole.weights)  # to the bit the same both ways


def test_without_weights_nothing_is_stored_of_them(tmp_path: Path) -> None:
    store = partitioned(write_tables(tmp_path / "source", "csv", kind=list("vwxyz")), tmp_path / "out")
    assert not store.manifest.weighted
    assert not list((tmp_path / "out").rglob("weights*"))
    with pytest.raises(PartitionError, match="the edges have no weights"):
        store.induced(torch.arange(4), weights=True)


def test_altered_or_missing_weights_are_refused(tmp_path: Path) -> None:
    path = write_weighted_graph(tmp_path / "p", True, 2)
    file = path / "part-00001" / "weights.arrow"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(PartitionError, match=r"weights\.arrow"):
        Store.open(path).induced(torch.arange(60), weights=True)
    with pytest.raises(PartitionError, match=r"weights\.arrow"):
        Manifest.read(path).verify(path)
    file.unlink()
    with pytest.raises(PartitionError, match=r"weights\.arrow"):
        Store.open(path)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 1e39, None])
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_weight_that_is_none_names_its_edge(suffix: str, value: float | None, tmp_path: Path) -> None:
    source = write_tables(tmp_path / "source", suffix, weight=[1.0, 1.0, 1.0, 1.0, value])
    with pytest.raises(PartitionError, match=r"1 edge weights are negative, missing or not finite, .* edge a -> c: "):
        partitioned(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "weights", "message"),
    [
        ("csv", ["1", "2", "heavy", "4", "5"], "heavy"),
        ("parquet", list("12345"), "edge weights must be numbers, got string"),
        ("npz", np.ones(3), r"edge weights have the shape \[3\], there are 5 edges"),
        ("npz", np.ones((5, 1)), r"edge weights have the shape \[5, 1\], there are 5 edges"),
        ("npz", np.array(list("12345")), "edge weights must be numbers, got <U1"),
    ],
)
def test_what_is_no_list_of_numbers_is_refused(kind: str, weights: Any, message: str, tmp_path: Path) -> None:
    if kind == "npz":
        source = write_npz(tmp_path / "source", edge_weight=weights)
    else:
        source = write_tables(tmp_path / "source", kind, weight=weights)
    with pytest.raises(PartitionError, match=message):
        partitioned(source, tmp_path / "out")


@pytest.mark.parametrize("weight", [3e38, 6e29])
def test_sums_beyond_float32_name_their_node(weight: float, tmp_path: Path) -> None:
    source = write_tables(tmp_path / "source", "csv", weight=[1.0, weight, weight, 1.0, 1.0])
    with pytest.raises(PartitionError, match=r"the edge weights of node a sum to (inf|1.2e\+30), more than 1e\+30"):
        partitioned(source, tmp_path / "out", directed=True)


def test_copies_of_an_edge_weigh_the_same() -> None:
    graph = weighted_graph()
    edges = order_edges(graph, directed=True)
    weights, targets = edges.weights, edges.targets
    assert weights is not None
    same = (edges.sources[1:] == edges.sources[:-1]) & (targets[1:] == targets[:-1])
    assert int(same.sum()) > 20
    assert torch.equal(weights[1:][same], weights[:-1][same])
