"""What is written depends on no limit of memory, which is kept; a run that ends early leaves nothing."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from numpy.typing import NDArray

from nfdist.cli.main import main
from nfdist.errors import ConfigError
from nfdist.partitioning import assign, planning
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.workspace import Workspace
from nfdist.sparse.adjacency import Adjacency
from tests.partitioning.small_memory import nothing_fits

NODES, EDGES = 210, 900


def ends(generator: np.random.Generator) -> NDArray[np.int64]:
    """Edges with copies, others that run both ways, self-loops and nodes without any."""
    pairs = generator.integers(0, NODES - 20, (2, EDGES))
    pairs[:, :90] = pairs[:, 90:180]
    pairs[:, 200:250] = pairs[::-1, 250:300]
    pairs[0, 300:310] = pairs[1, 300:310]
    return pairs


def write_tables(folder: Path, suffix: str, ids: Any, weighted: bool, files: int, seed: int) -> Path:
    """Columns of every kind with gaps, labels by name, an official split or none."""
    generator, pairs = np.random.default_rng(seed), ends(np.random.default_rng(seed))
    labels = [None if label < 0 else "abcd"[label] for label in generator.integers(-1, 4, NODES)]
    nodes = {
        "id": ids,
        "label": pa.array(labels, pa.string()),
        "number": pa.array(generator.standard_normal(NODES), mask=generator.random(NODES) < 0.2),
        "color": pa.array(generator.choice(["red", "green", ""], NODES)),
        "flag": pa.array(generator.random(NODES) < 0.5, mask=generator.random(NODES) < 0.02),
        "text": [f"{' '.join(generator.choice(list('abcdef'), 6))} {number}" for number in range(NODES)],
        "copy of id": ids,
    }
    if weighted:
        nodes["split"] = pa.array(generator.choice(["train", "valid", "test"], NODES).tolist(), pa.string())
    edges = {"source": ids[pairs[0]], "target": ids[pairs[1]]}
    if weighted:
        edges["weight"] = generator.random(EDGES)
    for name, columns in (("nodes", nodes), ("edges", edges)):
        table = pa.table(columns)
        (folder / name).mkdir(parents=True)
        for part in range(files):
            bounds = len(table) * part // files, len(table) * (part + 1) // files
            write: Any = pq.write_table if suffix == "parquet" else pyarrow.csv.write_csv
            write(table.slice(bounds[0], bounds[1] - bounds[0]), folder / name / f"{part}.{suffix}")
    return folder


def sources_in(folder: Path) -> dict[str, str]:
    generator = np.random.default_rng(4)
    texts = np.array([f"käse {number:x}" for number in generator.permutation(NODES)], dtype=object)
    numbers = generator.permutation(NODES) * 10**9 - 7 * 10**10
    found = {
        "texts": write_tables(folder / "texts", "parquet", texts, True, 3, 1),
        "numbers in CSV": write_tables(folder / "numbers", "csv", numbers, True, 2, 2),
        "row numbers": write_tables(folder / "rows", "parquet", np.arange(NODES), False, 1, 3),
        "texts in CSV": write_tables(folder / "csv", "csv", texts, False, 1, 4),
    }
    lists = pa.array(generator.standard_normal((NODES, 4)).astype(np.float16).tolist(), pa.list_(pa.float16()))
    (folder / "lists").mkdir()
    pq.write_table(pa.table({"features": lists, "label": np.arange(NODES) % 3}), folder / "lists" / "nodes.parquet")
    pairs = ends(generator)
    pq.write_table(pa.table({"src": pairs[0], "dst": pairs[1]}), folder / "lists" / "edges.parquet")
    found["lists"] = folder / "lists"
    usual = {"edge_index": pairs, "label": generator.integers(-1, 4, NODES)}
    rows = scipy.sparse.random_array((NODES, 60), density=0.04, rng=generator, format="csr")
    sparse = {f"feat_{key}": getattr(rows, key) for key in ("indptr", "indices", "data", "shape")}
    dense = {"feat": generator.standard_normal((NODES, 5)), "edge_weight": generator.random(EDGES)}
    masks = {f"{word}_mask": np.arange(NODES) % 4 == place for place, word in enumerate(("train", "val", "test"))}
    for name, arrays in (("sparse", sparse), ("dense", {**dense, **masks})):
        np.savez(folder / f"{name}.npz", **{**usual, **arrays})
        found[name] = folder / f"{name}.npz"
    return {**{name: str(path) for name, path in found.items()}, "made": "amazon2m-like", "cited": "papers100m-like"}


def contents(out: Path) -> dict[str, str]:
    """A digest of every file of a partition."""
    files = sorted(path for path in out.rglob("*") if path.is_file())
    return {str(path.relative_to(out)): hashlib.blake2b(path.read_bytes()).hexdigest() for path in files}


def by_degrees(both_ways: Adjacency, num_parts: int, weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """In the place of METIS, whose answers differ from run to run: a function of all that it is given."""
    sums = np.bincount(both_ways.targets.numpy(), both_ways.sources.numpy(), both_ways.num_nodes)
    parts: NDArray[np.int64] = (sums.astype(np.int64) + weights.sum(1)) % num_parts
    return parts


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return sources_in(tmp_path_factory.mktemp("sources"))


NAMES = ["texts", "numbers in CSV", "row numbers", "texts in CSV", "lists", "sparse", "dense", "made", "cited"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_depends_on_no_limit(tmp_path: Path, sources: dict[str, str], name: str) -> None:
    options = {"scale": NODES / (2_449_029 if name == "made" else 111_059_956)} if name in ("made", "cited") else {}
    (tmp_path / "parts.txt").write_text("\n".join(str(row * 7 % 3) for row in range(NODES)) + "\n")
    for ways in (
        {"method": "random", "parts": 3},
        {"method": "metis", "parts": 2, "directed": True, "split": "random:0.6/0.2/0.2"},
        {"method": "file", "parts": 3, "assignment": str(tmp_path / "parts.txt")},
    ):
        recipe = {**options, **ways, "out": str(tmp_path / "out")}
        found = []
        with patch.object(assign, "metis", by_degrees):
            partition(Recipe.build(sources[name], recipe))
            found.append(contents(tmp_path / "out"))
            (tmp_path / "out").rename(tmp_path / "in memory")
            with nothing_fits():
                partition(Recipe.build(sources[name], {**recipe, "memory": "8GiB"}))
            found.append(contents(tmp_path / "out"))
        assert len(found[0]) > 6
        assert found[0] == found[1]
        for folder in ("out", "in memory"):
            (tmp_path / folder).rename(tmp_path / f"{folder} {ways['method']}")


def test_too_little_memory_is_refused_with_what_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sources: dict[str, str]
) -> None:
    words = ["partition", sources["dense"], "--parts", "2", "--out", str(tmp_path / "out"), "--memory"]
    for memory, message in (
        ("many", "memory must be a size such as 4GiB"),
        ("1MiB", "--memory 1MiB is too little: the process itself takes"),
    ):
        assert main([*words, memory]) == 2
        assert message in capsys.readouterr().err
    with patch.object(planning, "_NODE_BYTES", 1 << 26):
        assert main([*words, "8GiB"]) == 2
    assert "is too little for 210 nodes: give at least" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="too little"), Workspace.within(1, tmp_path / "out"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_method_is_chosen_by_memory_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sources: dict[str, str]
) -> None:
    words = ["partition", sources["dense"], "--parts", "2", "--memory", "8GiB", "--out"]
    methods = {}
    for needed in (1 << 20, 9 << 30):
        with patch("nfdist.partitioning.pipeline.metis_bytes", lambda nodes, edges, needed=needed: needed):
            assert main([*words, str(tmp_path / str(needed))]) == 0
            told = capsys.readouterr().err
            methods[needed] = json.loads((tmp_path / str(needed) / "manifest.json").read_text())["recipe"]["method"]
            assert f"divided by --method {methods[needed]}: METIS needs about" in told
            assert "of the 8.0 GiB of --memory" in told
            wanted = 2 if needed > 8 << 30 else 0
            assert main([*words, str(tmp_path / f"metis {needed}"), "--method", "metis"]) == wanted
    assert methods[1 << 20] == "metis" != methods[9 << 30]
    assert "METIS needs about 9." in capsys.readouterr().err


def test_a_disk_without_room_is_refused_before_it_is_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sources: dict[str, str]
) -> None:
    words = ["partition", sources["dense"], "--parts", "2", "--out", str(tmp_path / "out")]
    with patch("nfdist.partitioning.pipeline._free_bytes", lambda out: 1000):
        assert main(words) == 2
        assert "GiB free, and ordering and writing this graph takes about" in capsys.readouterr().err
        assert main([*words[:1], "amazon2m-like", "--scale", "0.01", *words[2:]]) == 2
        assert "its disk has free 0.0: choose a smaller --scale" in capsys.readouterr().err
    full = OSError(28, "No space left on device")
    with nothing_fits(), patch("os.posix_fallocate", side_effect=full):
        assert main(words) == 2
    assert f"the disk that holds {tmp_path} is full: partitioning needs" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_killed_while_it_sorts_leaves_nothing_for_the_next(
    tmp_path: Path, sources: dict[str, str], number: signal.Signals
) -> None:
    code = (
        "import sys, time\n"
        "from tests.partitioning.small_memory import nothing_fits\n"
        "import nfdist.partitioning.ordering as ordering\n"
        "ordering.offsets = lambda *given: (print('ordered', flush=True), time.sleep(60))\n"
        "from nfdist.cli.main import entry\n"
        "with nothing_fits():\n"
        "    entry()\n"
    )
    words = ["partition", sources["dense"], "--parts", "2", "--out", str(tmp_path / "out"), "--method", "random"]
    with subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ordered\n"
        assert [path.name for path in tmp_path.iterdir()] != []  # DuckDB's folder; arrays have no name
        os.kill(running.pid, number)
        running.wait(timeout=60)
    left = [path.name for path in tmp_path.iterdir()]
    assert "out" not in left
    assert left == [] or number == signal.SIGKILL
    assert main(words) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_the_limit_is_kept(tmp_path: Path) -> None:
    """Measured in a process of its own, which holds nothing of other tests."""
    words = ["amazon2m-like", "--scale", "0.2", "--parts", "2", "--method", "random", "--json"]
    peaks = {}
    for memory in ("1GiB", "4GiB"):
        out = str(tmp_path / memory)
        command = [sys.executable, "-m", "nfdist", "partition", *words, "--memory", memory, "--out", out]
        done = subprocess.run(command, capture_output=True, check=True, text=True)
        peaks[memory] = json.loads(done.stdout.splitlines()[-1])["peak_private_bytes"]
    assert peaks["1GiB"] < 1 << 30
    assert peaks["1GiB"] < peaks["4GiB"] < 4 << 30
    written = [contents(tmp_path / memory) for memory in peaks]
    for files in written:
        del files["manifest.json"]  # which names the folder
    assert written[0] == written[1]
