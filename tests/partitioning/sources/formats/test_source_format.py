"""A format is one file: added to the package, its sources are recognized, counted and partitioned by the commands."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nfdist.cli.main import main
from nfdist.errors import PartitionError
from nfdist.partitioning.sources import SourceOptions, dataset_names, formats, load
from nfdist.partitioning.sources.formats.source_format import FORMATS
from nfdist.store.store import Store
from tests.adding import add_file

EDGE_LISTS = """
import numpy as np

from nfdist.partitioning.sources.formats.source_format import SourceCounts, SourceFormat, has_suffix, register
from nfdist.partitioning.sources.raw_graph import RawGraph


def read(path, name, options, workspace):
    ends = np.loadtxt(path, dtype=np.int64).T
    degrees = np.bincount(ends.ravel())
    return RawGraph(name, *ends, degrees[:, None].astype(np.float32), degrees % 2)


def count(path, options):
    ends = np.loadtxt(path, dtype=np.int64)
    return SourceCounts(int(ends.max()) + 1, len(ends), 1, None, "float32")


register(SourceFormat("edge-list", 80, read, count, has_suffix(".edges"), "an edge list (.edges)"))
"""


@pytest.fixture
def edge_lists(tmp_path: Path) -> Iterator[None]:
    before, paths, modules = list(FORMATS), list(formats.__path__), set(sys.modules)
    add_file(formats.__name__, tmp_path / "added", "edge_lists", EDGE_LISTS)
    yield
    FORMATS[:], formats.__path__[:] = before, paths
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def test_a_format_is_added_by_one_file(edge_lists: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "ring.edges"
    source.write_text("".join(f"{node} {(node + 1) % 30}\n" for node in range(30)))
    assert main(["plan", str(source), "--parts", "2", "--json"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == f"{source}: 30 nodes, 30 edges listed, 60 to store, 1 features"
    assert json.loads(lines[-1])["stored_edges"] == 60
    assert main(["partition", str(source), "--parts", "2", "--out", str(tmp_path / "out")]) == 0
    store = Store.open(tmp_path / "out")
    assert (store.num_nodes, store.manifest.num_edges, len(store.parts)) == (30, 60, 2)


def test_a_path_of_no_format_names_those_there_are(edge_lists: None, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    known = "an .npz, a folder of tables, a DGL graph (.bin, .dgl), a partition's .json or an edge list (.edges)"
    with pytest.raises(PartitionError) as caught:
        load(str(tmp_path / "notes.txt"), SourceOptions())
    assert str(caught.value) == f"{tmp_path / 'notes.txt'} is of no known kind: name {known}"


def test_formats_are_asked_in_one_order() -> None:
    names = ["synthetic", "papers", "npz", "ogb", "tables", "dgl", "dgl-partition", "digits", "news"]
    assert [known.name for known in FORMATS] == names
    assert len({known.order for known in FORMATS}) == len(FORMATS)
    assert len(set(dataset_names())) == len(dataset_names())
