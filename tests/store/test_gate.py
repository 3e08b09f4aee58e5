"""No byte of a partition is used before it was checked, and none is checked that is not used."""

import json
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nfdist.errors import CheckpointError, PartitionError
from nfdist.files import checksum
from nfdist.store import gate as gate_module
from nfdist.store.gate import BLOCK_BYTES, BlockDigests, Column, Gate, recorded
from nfdist.store.store import Store
from tests.store.building import build_graph, write


def flip(path: Path, place: int, bit: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= bit
    path.write_bytes(content)


def everything(directory: Path) -> list[Any]:
    """Whatever a store can be asked, as plain values."""
    store = Store.open(directory)
    nodes = torch.arange(store.num_nodes)
    mixed = nodes.flip(0)
    features = store.take(mixed)
    found = store.induced(mixed, loops=True)
    walked = [store.in_edges_of(number, np.arange(part.num_nodes)) for number, part in enumerate(store.parts)]
    return [
        (features.to_dense() if features.layout == torch.sparse_csr else features).tolist(),
        store.labels(mixed).tolist(),
        store.split(nodes).tolist(),
        store.original_ids(mixed).tolist(),
        store.node_ids(store.original_ids(mixed)).tolist(),
        [found.indptr.tolist(), found.sources.tolist()],
        [[tensor.tolist() for tensor in store.in_edges(number)] for number in range(len(store.parts))],
        [[array.tolist() for array in arrays] for arrays in walked],
        [rows.to_dense().tolist() if rows.layout == torch.sparse_csr else rows.tolist() for _, rows in store.scan(7)],
    ]


@pytest.mark.parametrize(("features", "ids"), [("float32", "strings"), ("sparse", "integers")])
def test_an_altered_byte_is_refused_wherever_it_is(tmp_path: Path, features: str, ids: str) -> None:
    directory = tmp_path / "p"
    write(directory, build_graph(features=features, ids=ids))
    truth = everything(directory)
    generator = np.random.default_rng(0)
    for path in sorted(directory.rglob("*.arrow")):
        content = path.read_bytes()
        for place in generator.choice(len(content), 4, replace=False):
            flip(path, int(place), 1 << int(generator.integers(8)))
            with pytest.raises(PartitionError, match=rf"{path.name} was altered .*: restore the file, or partition"):
                everything(directory)
            path.write_bytes(content)
    assert everything(directory) == truth


def test_a_block_is_checked_when_it_is_used_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    numbers = np.arange(4 * BLOCK_BYTES // 8)
    path.write_bytes(numbers.tobytes() + b"tail")
    stored = recorded(path)
    flip(path, 2 * BLOCK_BYTES + 5)
    gate = Gate(path, stored, "make it anew", CheckpointError)
    column = Column(torch.from_numpy(np.frombuffer(gate.content, np.int64, len(numbers)).copy()), gate)
    rows = BLOCK_BYTES // 8
    assert column.rows(0, 2 * rows).tolist() == numbers[: 2 * rows].tolist()
    assert column.at(np.array([3 * rows + 1, 5]))[3 * rows + 1] == 3 * rows + 1
    assert column.at(np.array([rows, 3 * rows]), np.array([rows, 2]))[rows] == rows
    altered = r"numbers was altered since it was written, in the MiB that begins at byte 2,097,152: make it anew"
    for use in (
        lambda: column.rows(2 * rows - 1, 2 * rows + 1),
        lambda: column.at(np.array([2 * rows])),
        lambda: column.at(np.array([0, 2 * rows - 1]), 2),
        lambda: column.at(np.array([rows]), np.array([2 * rows])),
        column.rows,
        gate.check_all,
    ):
        with pytest.raises(CheckpointError, match=altered):
            use()


def test_threads_that_read_at_once_are_refused_what_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "BLOCK_BYTES", 1 << 10)
    path, block = tmp_path / "numbers", (1 << 10) // 8
    numbers = np.arange(512 * block)
    path.write_bytes(numbers.tobytes())
    stored = recorded(path)
    flip(path, 8 * 300 * block)
    gate = Gate(path, stored)
    column = Column(torch.from_numpy(np.frombuffer(gate.content, np.int64).copy()), gate)
    generator = np.random.default_rng(0)
    reads = [generator.choice(len(numbers), 200) for _ in range(100)]

    def refused(rows: Any) -> bool:
        try:
            column.at(rows)
        except PartitionError:
            return True
        return False

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(refused, reads))
    assert found == [bool((rows // block == 300).any()) for rows in reads]
    assert True in found
    assert False in found


def test_rows_beyond_the_end_are_refused() -> None:
    column = Column(torch.arange(5))
    for rows, count in (([5], 1), ([-1], 1), ([3], 3), ([0], -1)):
        with pytest.raises(PartitionError, match="5 rows"):
            column.at(np.array(rows), count)
    assert column.at(np.array([], dtype=np.int64)).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES])
def test_digests_while_writing_are_those_of_the_file(tmp_path: Path, size: int) -> None:
    content = np.random.default_rng(0).bytes(size)
    (tmp_path / "file").write_bytes(content)
    digests = BlockDigests()
    for start in range(0, size, 700_001):
        digests.update(content[start : start + 700_001])
    assert digests.stored() == recorded(tmp_path / "file")
    assert len(digests.stored().digests) == -(-size // BLOCK_BYTES)


def as_version_1(directory: Path) -> None:
    """The manifest as version 1 wrote it: one checksum a file, none of its own."""
    path = directory / "manifest.json"
    content = json.loads(path.read_text())
    del content["checksum"]
    content["format_version"] = 1
    for name in content["files"]:
        file = (directory / name).read_bytes()
        content["files"][name] = {"size_bytes": len(file), "checksum": blake2b(file, digest_size=16).hexdigest()}
    path.write_text(json.dumps(content, indent=2))


def test_a_partition_of_version_1_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    directory = tmp_path / "p"
    write(directory, build_graph())
    truth = everything(directory)
    as_version_1(directory)
    read: list[Path] = []

    def watched(path: Path) -> str:
        read.append(path)
        return checksum(path)

    monkeypatch.setattr(gate_module, "checksum", watched)
    assert everything(directory) == truth
    assert sorted(read) == sorted(directory.rglob("*.arrow"))
    assert everything(directory) == truth
    assert len(read) == len(set(read))
    flip(directory / "part-00001" / "nodes.arrow", -700)
    with pytest.raises(PartitionError, match=r"nodes\.arrow was altered since it was written: restore the file"):
        everything(directory)


def test_a_version_that_was_altered_does_not_end_the_checking(tmp_path: Path) -> None:
    write(tmp_path / "p", build_graph())
    path = tmp_path / "p" / "manifest.json"
    path.write_text(path.read_text().replace('"format_version": 3', '"format_version": 1'))
    with pytest.raises(PartitionError, match="unknown field checksum"):
        Store.open(tmp_path / "p")
