"""DGL, 1.1.3 or 2.1.0, is importable beside the installed torch and agrees with nfdist's own product."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nfdist import seeds
from nfdist.errors import ConfigError
from nfdist.sparse import dgl_door
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.dgl_door import dgl
from nfdist.sparse.spmm import spmm
from tests.needs import needs_dgl


@needs_dgl
def test_dgl_imports_and_computes_the_same_product() -> None:
    ends = torch.randint(50, (2, 200), generator=seeds.generator(0, "ends"))
    graph = Adjacency.from_edges(ends[0], ends[1], 50)
    rows, weights = torch.randn(50, 8, generator=seeds.generator(1, "rows")), torch.rand(graph.num_edges)
    theirs = dgl().graph((graph.sources, graph.targets), num_nodes=50)
    assert torch.allclose(dgl().ops.u_mul_e_sum(theirs, rows, weights), spmm(graph, rows, weights), atol=1e-5)


@needs_dgl
def test_the_release_that_is_installed_is_one_of_those_that_are_tested() -> None:
    assert dgl().__version__ in ("1.1.3", "2.1.0")


@needs_dgl
def test_what_needs_graphbolt_is_told_why_it_fails() -> None:
    dgl()
    with pytest.raises(AttributeError, match=r"dgl\.graphbolt\.ItemSet cannot be used .* torch 2\.2\.1"):
        sys.modules["dgl.graphbolt"].ItemSet  # noqa: B018


@needs_dgl
def test_importing_dgl_writes_nothing_into_the_home(tmp_path: Path) -> None:
    code = "from nfdist.sparse.dgl_door import dgl; dgl()"
    environment = {"HOME": str(tmp_path), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (0, "", [])


def test_a_dgl_that_cannot_be_imported_is_one_line_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "dgl"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dgl", None)
    with pytest.raises(ConfigError, match=r"^DGL cannot be imported \(.*\): ") as caught:
        dgl_door.dgl.__wrapped__()
    assert str(caught.value).endswith(dgl_door.REMEDY)
    assert "dgl.graphbolt" not in sys.modules
