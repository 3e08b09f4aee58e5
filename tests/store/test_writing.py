import errno
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from nfdist.errors import PartitionError
from nfdist.store.manifest import Manifest
from nfdist.store.source_graph import SourceGraph
from nfdist.store.store import Store
from nfdist.store.writing import write_partition
from tests.store.building import RECIPE, build_graph, in_edges, write


def written_bytes(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_parts_own_ranges_and_keep_the_order_of_the_rows(tmp_path: Path) -> None:
    graph = build_graph()
    assignment = np.random.default_rng(1).integers(0, 4, 60)
    write(tmp_path / "p", graph, 4, assignment)
    store = Store.open(tmp_path / "p")
    for number, part in enumerate(store.parts):
        owned = store.original_ids(torch.arange(part.start, part.stop))
        assert owned.tolist() == graph.original_ids[assignment == number].tolist()


@pytest.mark.parametrize("assignment_type", [np.int8, np.uint64, np.int64])
def test_an_empty_part_is_a_part(tmp_path: Path, assignment_type: type[np.integer[Any]]) -> None:
    graph = build_graph()
    assignment = np.where(np.arange(60) % 2, 0, 3).astype(assignment_type)
    manifest = write(tmp_path / "p", graph, 5, assignment)
    assert [part.num_nodes for part in manifest.parts] == [30, 0, 0, 30, 0]
    store = Store.open(tmp_path / "p")
    nodes = store.node_ids(graph.original_ids)
    np.testing.assert_array_equal(store.take(nodes).numpy(), graph.features)
    assert [len(tensor) for tensor in store.in_edges(1)] == [1, 0]
    assert [piece for piece, _ in store.scan(100)] == [slice(0, 30), slice(30, 60)]


@pytest.mark.parametrize("edges_at_once", [1, 13])
def test_the_size_of_pieces_changes_nothing(tmp_path: Path, edges_at_once: int) -> None:
    write(tmp_path / "whole", build_graph())
    write(tmp_path / "pieces", build_graph(), edges_at_once=edges_at_once)
    assert written_bytes(tmp_path / "whole") == written_bytes(tmp_path / "pieces")


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_edges_given_twice_and_out_of_order_are_kept(tmp_path: Path, dtype: Any) -> None:
    graph = build_graph(num_nodes=3, num_edges=0)
    indptr, sources = np.array([0, 4, 4, 5], dtype=dtype), np.array([2, 0, 2, 1, 2], dtype=dtype)
    write_partition(tmp_path / "p", graph, indptr, sources, np.array([1, 0, 0]), 2, RECIPE, directed=True)
    store = Store.open(tmp_path / "p")  # rows 0, 1, 2 are now 2, 0, 1
    assert [tensor.tolist() for tensor in store.in_edges(0)] == [[0, 0, 1], [1]]
    assert [tensor.tolist() for tensor in store.in_edges(1)] == [[0, 4], [0, 1, 1, 2]]


@pytest.mark.parametrize("features", ["float32", "float16", "sparse"])
@pytest.mark.parametrize("ids", ["integers", "strings"])
def test_every_file_is_one_aligned_uncompressed_batch(tmp_path: Path, features: str, ids: str) -> None:
    write(tmp_path / "p", build_graph(features=features, ids=ids))
    for path in (tmp_path / "p").rglob("*.arrow"):
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        assert reader.num_record_batches == 1
        first = next(buffer for buffer in reader.get_batch(0).column(0).buffers() if buffer is not None)
        assert first.address % 64 == 0, path


def test_a_directory_that_exists_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path / "p", build_graph())
    before = written_bytes(tmp_path)
    with pytest.raises(PartitionError, match="already exists"):
        write(tmp_path / "p", build_graph(seed=1))
    assert written_bytes(tmp_path) == before


class Stop(BaseException):
    pass


@pytest.mark.parametrize("error", [KeyboardInterrupt, Stop, ValueError])
@pytest.mark.parametrize("after", [0, 3, 9])
def test_an_interruption_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], after: int
) -> None:
    interrupt(monkeypatch, error(), after)
    with pytest.raises(error):
        write(tmp_path / "p", build_graph())
    assert list(tmp_path.iterdir()) == []


def interrupt(monkeypatch: pytest.MonkeyPatch, error: BaseException, after: int) -> None:
    """Raise in place of writing a file, once `after` files are written."""
    from nfdist.store.arrow_files import write_columns

    written: list[Path] = []

    def failing(path: Path, columns: dict[str, Any]) -> None:
        if len(written) == after:
            raise error
        written.append(path)
        write_columns(path, columns)

    monkeypatch.setattr("nfdist.store.writing.write_columns", failing)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    interrupt(monkeypatch, OSError(number, os.strerror(number)), 4)
    with pytest.raises(PartitionError, match=rf"disk that holds {tmp_path} is full: .* needs about [\d.]+ MiB"):
        write(tmp_path / "p", build_graph())
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PartitionError, match=r"file/p cannot be written: .*exists"):
        write(tmp_path / "file" / "p", build_graph())


def test_a_killed_writer_leaves_nothing_whole_and_the_next_run_cleans_up(tmp_path: Path) -> None:
    program = """
import sys, time
from pathlib import Path
import nfdist.store.writing as writing
from tests.store.building import build_graph, write
write_columns = writing.write_columns
def slowly(path, columns):
    write_columns(path, columns)
    if "part-00001" in str(path):
        print("writing", flush=True)
        time.sleep(60)
writing.write_columns = slowly
write(Path(sys.argv[1]), build_graph())
"""
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "p")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        alive = [path.name for path in tmp_path.iterdir()]
        write(tmp_path / "q", build_graph())
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    (leftover,) = alive
    assert leftover.startswith(f".p.tmp-{process.pid}-")
    assert (tmp_path / leftover).exists()
    for name in ("p", leftover):
        with pytest.raises(PartitionError):
            Store.open(tmp_path / name)
    write(tmp_path / "p", build_graph())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p", "q"]
    Manifest.read(tmp_path / "p").verify(tmp_path / "p")


def test_what_a_living_writer_is_writing_is_left_alone(tmp_path: Path) -> None:
    others = [
        tmp_path / f".p.tmp-{os.getpid()}-elsewhere-00000000",
        tmp_path / ".p.tmp-notes",
        tmp_path / ".pp.tmp-1-a",
    ]
    for other in others:
        other.mkdir()
    write(tmp_path / "p", build_graph())
    assert all(other.exists() for other in others)


def test_progress_counts_every_node(tmp_path: Path) -> None:
    graph = build_graph()
    seen: list[int] = []
    assignment = np.arange(60) % 3
    write_partition(tmp_path / "p", graph, *in_edges(graph), assignment, 3, RECIPE, False, progress=seen.append)
    assert seen == [20, 20, 20]


def changed(**values: Any) -> SourceGraph:
    return replace(build_graph(), **values)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (changed(original_ids=np.zeros(60, dtype=np.int64)), "original id 0 belongs to two nodes"),
        (changed(original_ids=np.array(["a"] * 60)), "original id 'a' belongs to two nodes"),
        (changed(original_ids=np.array([None] * 60)), "60 nodes have no original id"),
        (changed(original_ids=np.array([1.5] * 60)), "all integers or all strings"),
        (changed(original_ids=np.arange(60, dtype=np.uint64) + np.uint64(2**63)), "does not fit"),
        (changed(original_ids=np.arange(0)), "has no nodes"),
        (changed(features=np.zeros((60, 2))), "features are float64"),
        (changed(features=np.zeros((60, 0), dtype=np.float32)), r"shape \[60, 0\]"),
        (changed(features=np.zeros((59, 2), dtype=np.float32)), "features have 59 rows"),
        (changed(labels=np.zeros((60, 2, 2))), "labels have the shape"),
        (changed(labels=np.zeros(61)), "labels have 61 rows"),
        (changed(labels=np.full(60, np.nan)), "labels are float64"),
        (changed(labels=np.full((60, 2), 300)), "not 0, 1 or -1"),
        (changed(split=np.full(60, 4, dtype=np.int8)), "a split lies outside"),
    ],
)
def test_a_graph_that_cannot_be_stored_is_refused(tmp_path: Path, graph: SourceGraph, message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        write_partition(tmp_path / "p", graph, *in_edges(build_graph()), np.arange(60) % 3, 3, RECIPE, False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("assignment", [np.arange(60), np.full(60, -1), np.zeros(59, dtype=int)])
def test_an_assignment_must_fit(tmp_path: Path, assignment: Any) -> None:
    with pytest.raises(PartitionError, match="a part from 0 to 2"):
        write(tmp_path / "p", build_graph(), 3, assignment)
