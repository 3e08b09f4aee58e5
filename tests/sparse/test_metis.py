"""METIS cuts few edges and balances what it can, through either of the libraries that bring it."""

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import psutil
import pytest
import torch
from numpy.typing import NDArray

from nfdist import seeds
from nfdist.errors import ConfigError, PartitionError
from nfdist.signals import Interruptible
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


def test_in_a_process_of_its_own_it_finds_the_same_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with edges that are mapped from read-only files, and where the current folder is gone."""
    graph = clusters()
    weights = np.stack([np.ones(graph.num_nodes), np.arange(graph.num_nodes) % 3], 1).astype(np.int64)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    np.save(tmp_path / "sources.npy", graph.sources.to(torch.int32).numpy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about what cannot be written to
        sources = torch.from_numpy(np.load(tmp_path / "sources.npy", mmap_mode="r"))
    mapped = Adjacency(graph.indptr.to(torch.int32), sources)
    apart = metis(mapped, 4, weights, tmp_path / "out", numbers_here=0)
    assert apart.tolist() == metis(graph, 4, weights).tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["sources.npy"]


def test_what_fails_in_its_process_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, weights = clusters(), np.ones((CLUSTERS * SIZE, 1), dtype=np.int64)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PartitionError, match=r"METIS failed \(its process ended with code 1\): try --method stream$"):
        metis(graph, 2, weights, tmp_path / "out", numbers_here=0)
    (tmp_path / "killed").write_text("#!/bin/sh\nkill -9 $$\n")
    (tmp_path / "killed").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "killed"))
    with pytest.raises(PartitionError, match=r"ended by SIGKILL, as where memory is short\): try --method stream$"):
        metis(graph, 2, weights, tmp_path / "out", numbers_here=0)
    assert [path.name for path in tmp_path.iterdir()] == ["killed"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_whatever_it_is_doing(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deaf").write_text("#!/bin/sh\ntrap '' INT TERM\nexec sleep 60\n")
    (tmp_path / "deaf").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "deaf"))
    graph, weights = clusters(), np.ones((CLUSTERS * SIZE, 1), dtype=np.int64)
    begun: list[psutil.Process] = []

    def interrupt() -> None:
        while not (found := [child for child in psutil.Process().children() if child.name() == "sleep"]):
            time.sleep(0.01)
        begun.extend(found)
        time.sleep(0.1)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    started = time.monotonic()
    with pytest.raises(BaseException) as raised, Interruptible():  # noqa: PT011
        metis(graph, 2, weights, tmp_path / "out", numbers_here=0)
    thread.join()
    assert raised.typename == ("KeyboardInterrupt" if number == signal.SIGINT else "Stopped")
    assert time.monotonic() - started < 20
    assert not any(process.is_running() for process in begun)
    assert [path.name for path in tmp_path.iterdir()] == ["deaf"]
