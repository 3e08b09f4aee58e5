import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nfdist.errors import PartitionError
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.rows import ROWS_AT_ONCE
from nfdist.store.source_graph import TRAIN, SourceGraph
from nfdist.store.store import Store
from nfdist.store.writing import write_partition
from tests.store.building import RECIPE, build_graph, dense, dense_features, in_edges, write

GRAPHS: dict[str, dict[str, Any]] = {
    "integers": {},
    "strings": {"ids": "strings"},
    "sparse": {"features": "sparse", "ids": "strings"},
    "float16": {"features": "float16"},
    "multi-label": {"questions": 3},
    "no-edges": {"num_edges": 0},
    "one-node": {"num_nodes": 1, "num_edges": 0},
}


def to_dense(rows: Tensor) -> Any:
    return rows.to_dense().numpy()


def dense_adjacency(adjacency: Adjacency) -> Any:
    matrix = np.zeros((adjacency.num_nodes, adjacency.num_sources), dtype=int)
    np.add.at(matrix, (adjacency.targets.numpy(), adjacency.sources.numpy()), 1)
    return matrix


def by_node_id(graph: SourceGraph, store: Store) -> Any:
    """The dense truth, with node ids for rows and columns."""
    rows = np.argsort(store.node_ids(graph.original_ids).numpy())
    return dense(graph)[rows][:, rows]


@pytest.mark.parametrize("num_parts", [1, 2, 7])
@pytest.mark.parametrize("kind", GRAPHS)
def test_everything_comes_back_exactly_by_original_id(tmp_path: Path, kind: str, num_parts: int) -> None:
    graph = build_graph(**GRAPHS[kind])
    write(tmp_path / "p", graph, num_parts)
    store = Store.open(tmp_path / "p")
    nodes = store.node_ids(graph.original_ids)
    assert sorted(nodes.tolist()) == list(range(graph.num_nodes))
    assert store.original_ids(nodes).tolist() == graph.original_ids.tolist()
    features = store.take(nodes)
    np.testing.assert_array_equal(to_dense(features), dense_features(graph), strict=True)
    np.testing.assert_array_equal(store.labels(nodes).numpy(), graph.labels)
    np.testing.assert_array_equal(store.split(nodes).numpy(), graph.split, strict=True)
    np.testing.assert_array_equal(dense_adjacency(store.induced(nodes)), dense(graph))
    assert (store.num_nodes, store.num_features) == dense_features(graph).shape
    assert (store.num_edges, store.num_classes, store.task) == (dense(graph).sum(), graph.num_classes, graph.task)


@pytest.mark.parametrize("num_parts", [1, 3])
def test_in_edges_are_the_graph_with_ascending_sources(tmp_path: Path, num_parts: int) -> None:
    graph = build_graph()
    write(tmp_path / "p", graph, num_parts)
    store = Store.open(tmp_path / "p")
    truth = by_node_id(graph, store)
    for number, part in enumerate(store.parts):
        indptr, sources = store.in_edges(number)
        assert indptr.dtype == sources.dtype == torch.int32
        for row, target in enumerate(range(part.start, part.stop)):
            assert sources[indptr[row] : indptr[row + 1]].tolist() == np.flatnonzero(truth[target]).tolist()


@pytest.mark.parametrize("features", ["float32", "float16", "sparse"])
@pytest.mark.parametrize("rows_at_once", [1, 7, 1000])
def test_scan_equals_take_of_all_nodes_in_order(tmp_path: Path, features: str, rows_at_once: int) -> None:
    write(tmp_path / "p", build_graph(features=features))
    store = Store.open(tmp_path / "p")
    pieces = list(store.scan(rows_at_once))
    assert [node for piece, _ in pieces for node in range(piece.start, piece.stop)] == list(range(60))
    assert all(len(rows) == piece.stop - piece.start <= rows_at_once for piece, rows in pieces)
    everything = np.concatenate([to_dense(rows) for _, rows in pieces])
    np.testing.assert_array_equal(everything, to_dense(store.take(torch.arange(60))), strict=True)


@pytest.mark.parametrize("num_parts", [1, 3])
@pytest.mark.parametrize("node_ids", [[], [5], [3, 3, 59, 0, 3], list(range(59, -1, -1)), [0, 3, 3, 40, 59]])
def test_take_fills_the_given_buffer(tmp_path: Path, num_parts: int, node_ids: list[int]) -> None:
    write(tmp_path / "p", build_graph(), num_parts)
    store = Store.open(tmp_path / "p")
    buffer = torch.full((len(node_ids), 5), torch.nan)
    taken = store.take(torch.tensor(node_ids, dtype=torch.int32), out=buffer)
    assert taken.data_ptr() == buffer.data_ptr()
    everything = store.take(torch.arange(60))
    torch.testing.assert_close(buffer, everything[node_ids], rtol=0, atol=0)


@pytest.mark.parametrize("num_parts", [1, 3])
@pytest.mark.parametrize("node_ids", [[], [5], [3, 3, 9], range(60), range(7, 12), range(59, -1, -1), range(0, 60, 2)])
def test_sparse_rows_come_in_the_order_asked_for(tmp_path: Path, num_parts: int, node_ids: Sequence[int]) -> None:
    graph = build_graph(features="sparse")
    write(tmp_path / "p", graph, num_parts)
    store = Store.open(tmp_path / "p")
    everything = dense_features(graph)[np.argsort(store.node_ids(graph.original_ids).numpy())]
    taken = store.take(torch.tensor(list(node_ids), dtype=torch.int64))
    np.testing.assert_array_equal(to_dense(taken), everything[list(node_ids)], strict=True)


def test_take_in_many_pieces(tmp_path: Path) -> None:
    write(tmp_path / "p", build_graph())
    store = Store.open(tmp_path / "p")
    nodes = torch.randint(0, 60, (3 * ROWS_AT_ONCE + 7,))
    assert torch.equal(store.take(nodes), store.take(torch.arange(60))[nodes])


@pytest.mark.parametrize("at_once", [1, 10, 1 << 17])
@pytest.mark.parametrize("num_parts", [1, 4])
def test_induced_equals_dense_indexing(tmp_path: Path, num_parts: int, at_once: int) -> None:
    graph = build_graph(num_edges=900)
    write(tmp_path / "p", graph, num_parts)
    store = Store.open(tmp_path / "p")
    truth = by_node_id(graph, store)
    generator = torch.Generator().manual_seed(0)
    for size in (0, 1, 2, 20, 60, 33, 20):  # one store throughout: a batch leaves nothing behind for the next
        nodes = torch.randperm(60, generator=generator)[:size]
        adjacency = store.induced(nodes, at_once=at_once)
        np.testing.assert_array_equal(dense_adjacency(adjacency), truth[np.ix_(nodes.numpy(), nodes.numpy())])
        for row in range(size):
            assert (adjacency.sources[adjacency.indptr[row] : adjacency.indptr[row + 1]].diff() > 0).all()
        assert adjacency.indptr.dtype == adjacency.sources.dtype == torch.int32


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("num_parts", [1, 4])
def test_a_rectangle_is_a_slice_of_the_whole_graph(tmp_path: Path, num_parts: int, twice: bool, loops: bool) -> None:
    graph = build_graph(num_edges=900)
    indptr, sources = in_edges(graph)
    if twice:  # as a directed source may list its edges
        indptr, sources = 2 * indptr, np.repeat(sources, 2)
    assignment = np.random.default_rng(9).integers(0, num_parts, 60)
    write_partition(tmp_path / "p", graph, indptr, sources, assignment, num_parts, RECIPE, directed=True)
    store = Store.open(tmp_path / "p")
    truth = (by_node_id(graph, store) | (np.eye(60, dtype=bool) & loops)).astype(int)
    generator = torch.Generator().manual_seed(0)
    for num_targets, num_sources in ((0, 0), (0, 5), (5, 0), (1, 60), (60, 1), (20, 40), (60, 60)):
        targets = torch.randperm(60, generator=generator)[:num_targets]
        batch = torch.randperm(60, generator=generator)[:num_sources]
        adjacency = store.induced(targets, batch, loops=loops)
        np.testing.assert_array_equal(dense_adjacency(adjacency), truth[np.ix_(targets.numpy(), batch.numpy())])
        assert (adjacency.num_nodes, adjacency.columns) == (num_targets, num_sources)
        square = store.induced(batch, loops=loops)
        np.testing.assert_array_equal(dense_adjacency(square), truth[np.ix_(batch.numpy(), batch.numpy())])
        assert square.columns is None


def test_sources_may_lie_in_parts_that_are_not_held(tmp_path: Path) -> None:
    write(tmp_path / "p", build_graph())
    whole, some = Store.open(tmp_path / "p"), Store.open(tmp_path / "p", parts=[1])
    here, everywhere = torch.arange(some.parts[1].start, some.parts[1].stop), torch.arange(60).flip(0)
    expected, found = (store.induced(here, everywhere, loops=True) for store in (whole, some))
    assert torch.equal(expected.sources, found.sources)
    assert torch.equal(expected.indptr, found.indptr)


def test_batches_induced_in_two_threads_do_not_mix(tmp_path: Path) -> None:
    write(tmp_path / "p", build_graph(num_nodes=400, num_edges=9000))
    store = Store.open(tmp_path / "p")
    batches = [torch.randperm(400, generator=torch.Generator().manual_seed(seed))[:200] for seed in range(40)]
    expected = [store.induced(nodes, loops=True) for nodes in batches]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(partial(store.induced, loops=True), batches))
    for one, other in zip(expected, found, strict=True):
        assert torch.equal(one.indptr, other.indptr)
        assert torch.equal(one.sources, other.sources)


def test_a_refused_batch_leaves_nothing_behind(tmp_path: Path) -> None:
    write(tmp_path / "p", build_graph())
    store = Store.open(tmp_path / "p", parts=[0, 2])
    held = torch.arange(store.parts[0].stop)
    before = store.induced(held)
    with pytest.raises(PartitionError):
        store.induced(torch.arange(60))
    with pytest.raises(PartitionError, match="node id 59 is in the batch twice"):
        store.induced(held, torch.tensor([59, 3, 59]))
    after = store.induced(held)
    assert torch.equal(before.sources, after.sources)
    assert torch.equal(before.indptr, after.indptr)


def test_splits_and_parts(tmp_path: Path) -> None:
    graph = build_graph()
    manifest = write(tmp_path / "p", graph)
    store = Store.open(tmp_path / "p")
    names = {name: store.nodes_in_split(name) for name in ("unassigned", "train", "valid", "test")}
    assert torch.cat(list(names.values())).sort().values.tolist() == list(range(60))
    found = set(store.original_ids(names["train"]).tolist())
    assert found == set(graph.original_ids[graph.split == TRAIN].tolist())
    assert store.parts == manifest.parts
    with pytest.raises(PartitionError, match="no split 'training'"):
        store.nodes_in_split("training")


def test_reading_is_zero_copy(tmp_path: Path) -> None:
    write(tmp_path / "p", build_graph(), 1)
    store = Store.open(tmp_path / "p")
    (_, rows), *_ = store.scan(1000)
    again = next(iter(store.scan(10)))[1]
    assert rows.data_ptr() == again.data_ptr()
    assert rows.data_ptr() % 64 == 0
    assert all(tensor.data_ptr() % 64 == 0 for tensor in store.in_edges(0))


@pytest.mark.parametrize("bad", [-1, 60, 2**40])
def test_a_node_id_out_of_range_is_named(tmp_path: Path, bad: int) -> None:
    write(tmp_path / "p", build_graph())
    store = Store.open(tmp_path / "p")
    for read in (store.take, store.labels, store.split, store.original_ids, store.induced):
        with pytest.raises(PartitionError, match=f"node id {bad} is outside the 60 nodes"):
            read(torch.tensor([3, bad]))


def test_bad_requests(tmp_path: Path) -> None:
    write(tmp_path / "p", build_graph())
    write(tmp_path / "s", build_graph(features="sparse"))
    store = Store.open(tmp_path / "p")
    with pytest.raises(PartitionError, match="node id 7 is in the batch twice"):
        store.induced(torch.tensor([7, 1, 7]))
    with pytest.raises(PartitionError, match="node id 60 is outside"):
        store.induced(torch.tensor([7]), torch.tensor([7, 60]))
    with pytest.raises(PartitionError, match="must be integers"):
        store.take(torch.tensor([0.5]))
    with pytest.raises(PartitionError, match=r"`out` is torch\.float32 \[2, 4\]"):
        store.take(torch.tensor([1, 2]), out=torch.empty(2, 4))
    with pytest.raises(PartitionError, match="leave `out` away"):
        Store.open(tmp_path / "s").take(torch.tensor([1]), out=torch.empty(1, 5))
    with pytest.raises(PartitionError, match="at least one row"):
        next(store.scan(0))
    with pytest.raises(PartitionError, match="no part 3"):
        store.in_edges(3)
    with pytest.raises(PartitionError, match="no part 9"):
        Store.open(tmp_path / "p", parts=[0, 9])


@pytest.mark.parametrize("ids", ["integers", "strings"])
def test_an_unknown_original_id_is_named(tmp_path: Path, ids: str) -> None:
    graph = build_graph(ids=ids)
    write(tmp_path / "p", graph)
    store = Store.open(tmp_path / "p")
    for unknown in ("", "zzz", "käse") if ids == "strings" else (-(2**60), 5, 2**60):
        wanted = [*graph.original_ids[:2].tolist(), unknown, unknown]
        with pytest.raises(PartitionError, match=re.escape(f"no node is called {unknown!r}")):
            store.node_ids(wanted)
    other = [1, 2] if ids == "strings" else ["1"]
    with pytest.raises(PartitionError, match=f"are {ids}"):
        store.node_ids(other)
    assert store.node_ids([]).tolist() == []
    repeated = graph.original_ids[[4, 4, 0]]
    assert store.original_ids(store.node_ids(repeated)).tolist() == repeated.tolist()


def test_a_store_of_some_parts_needs_only_their_files(tmp_path: Path) -> None:
    write(tmp_path / "p", build_graph())
    whole = Store.open(tmp_path / "p")
    here, elsewhere = whole.parts[2], whole.parts[1]
    nodes = torch.arange(here.start, here.stop)
    expected, train = whole.take(nodes), whole.nodes_in_split("train")
    assert Store.available_parts(tmp_path / "p") == [0, 1, 2]
    shutil.rmtree(tmp_path / "p" / "part-00001")
    with pytest.raises(PartitionError, match=r"part-00001.* cannot be read"):
        Store.open(tmp_path / "p")
    assert Store.available_parts(tmp_path / "p") == [0, 2]
    store = Store.open(tmp_path / "p", parts=[2, 0])
    assert store.held_parts == (0, 2)
    assert torch.equal(store.take(nodes), expected)
    assert [piece.start for piece, _ in store.scan(1000)] == [0, here.start]
    held = train[(train < elsewhere.start) | (train >= elsewhere.stop)]
    assert torch.equal(store.nodes_in_split("train"), held)
    for read in (store.take, store.labels, store.split, store.original_ids, store.induced):
        with pytest.raises(PartitionError, match=r"part 1 of .* is not held here"):
            read(torch.tensor([0, elsewhere.start]))
    with pytest.raises(PartitionError, match="is not held here"):
        store.in_edges(1)


def damaged(graph: SourceGraph, directory: Path, name: str) -> None:
    write(directory, graph)
    path = directory / name
    path.write_bytes(b"\0" * path.stat().st_size)


@pytest.mark.parametrize("name", ["nodes", "indptr", "sources"])
def test_a_file_that_is_not_arrow_is_named(tmp_path: Path, name: str) -> None:
    damaged(build_graph(), tmp_path / "p", f"part-00001/{name}.arrow")
    with pytest.raises(PartitionError, match=f"part-00001/{name}.arrow was altered since it was written"):
        Store.open(tmp_path / "p")


def test_files_swapped_between_partitions_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", build_graph())
    write(tmp_path / "b", build_graph(features="float16"))
    shutil.rmtree(tmp_path / "a" / "part-00001")
    shutil.copytree(tmp_path / "b" / "part-00001", tmp_path / "a" / "part-00001")
    with pytest.raises(PartitionError, match=r"nodes\.arrow has .* bytes instead of"):
        Store.open(tmp_path / "a")


def test_reading_needs_no_dgl(tmp_path: Path) -> None:
    write(tmp_path / "p", build_graph())
    program = """
import sys, torch
from nfdist.store.store import Store
store = Store.open(sys.argv[1])
nodes = torch.arange(store.num_nodes)
store.take(nodes), store.labels(nodes), store.induced(nodes), store.node_ids(store.original_ids(nodes))
assert not [name for name in sys.modules if name.split(".")[0] in ("dgl", "ogb", "sklearn")]
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "p")], check=True, timeout=60)


def test_a_plain_pyarrow_script_reads_a_part(tmp_path: Path) -> None:
    graph = build_graph()
    write(tmp_path / "p", graph, 1)
    program = """
import json, sys
import pyarrow as pa
folder = sys.argv[1]
read = lambda name: pa.ipc.open_file(pa.memory_map(f"{folder}/part-00000/{name}.arrow")).read_all()
nodes, indptr, sources = read("nodes"), read("indptr")["indptr"], read("sources")["sources"]
print(json.dumps([nodes["original_id"].to_pylist(), nodes["features"].to_pylist(), nodes["label"].to_pylist(),
                  indptr.to_pylist(), sources.to_pylist()]))
assert not [name for name in sys.modules if name.split(".")[0] in ("nfdist", "torch")]
"""
    command = [sys.executable, "-c", program, str(tmp_path / "p")]
    output = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True, cwd=tmp_path).stdout
    original_ids, features, labels, indptr, sources = json.loads(output)
    assert original_ids == graph.original_ids.tolist()
    assert features == graph.features.tolist()
    assert labels == graph.labels.tolist()
    truth = dense(graph)
    assert [sources[a:b] for a, b in pairwise(indptr)] == [np.flatnonzero(row).tolist() for row in truth]
