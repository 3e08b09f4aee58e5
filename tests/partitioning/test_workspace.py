"""What is written depends on no limit of memory, which is kept; a run that ends early leaves nothing."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from nfdist.cli.main import main
from nfdist.errors import ConfigError
from nfdist.partitioning import assign, planning
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.workspace import Workspace
from tests.partitioning.every_source import NAMES, NODES, by_degrees, contents, sources_in
from tests.partitioning.small_memory import nothing_fits


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return sources_in(tmp_path_factory.mktemp("sources"))


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
