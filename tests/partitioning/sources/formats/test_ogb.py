"""OGB's datasets, read by ogb's own reader from tiny ones laid out in its raw format."""

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nfdist.errors import PartitionError
from nfdist.partitioning.sources import SourceCounts, SourceOptions, counts, load

NODES = 9
EDGES = np.array([[0, 1], [1, 2], [2, 0], [3, 3], [4, 5]])
SPLIT = {"train": [0, 2, 4, 6], "valid": [1, 3], "test": [8, 5, 7]}


def write(path: Path, values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = np.asarray(values).reshape(len(values), -1)
    with gzip.open(path, "wt") as stream:
        stream.writelines(",".join(map(str, row.tolist())) + "\n" for row in rows)


def lay_out(folder: Path, scheme: str, labels: Any, **files: Any) -> Path:
    write(folder / "raw" / "edge.csv.gz", EDGES)
    write(folder / "raw" / "num-node-list.csv.gz", [NODES])
    write(folder / "raw" / "num-edge-list.csv.gz", [len(EDGES)])
    write(folder / "raw" / "node-label.csv.gz", labels)
    for name, values in files.items():
        write(folder / "raw" / f"{name.replace('_', '-')}.csv.gz", values)
    for name, rows in SPLIT.items():
        write(folder / "split" / scheme / f"{name}.csv.gz", rows)
    return folder


FEATURES = np.round(np.random.default_rng(0).standard_normal((NODES, 4)), 4)
LABELS = np.arange(NODES) % 5


@pytest.mark.parametrize("place", ["ogbn_products", "ogb/ogbn_products", "products", "dataset/ogbn_products"])
def test_products_with_the_official_split(data: Path, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    lay_out(data / place, "sales_ranking", LABELS, node_feat=FEATURES)
    graph = load("ogbn-products", SourceOptions())
    assert np.array_equal(np.stack([graph.sources, graph.targets], axis=1), EDGES)
    assert np.array_equal(graph.features, FEATURES.astype(np.float32))
    assert np.array_equal(graph.labels, LABELS)
    assert (graph.name, graph.task, graph.num_classes) == ("ogbn-products", "single", 5)
    assert [np.flatnonzero(graph.split == code).tolist() for code in (1, 2, 3)] == [sorted(x) for x in SPLIT.values()]
    assert counts("ogbn-products", SourceOptions()) == SourceCounts(NODES, len(EDGES), 4, None, "float32")
    assert capsys.readouterr() == ("", "")


def test_amazon2m_is_products_with_a_random_split(data: Path) -> None:
    lay_out(data / "ogbn_products", "sales_ranking", LABELS, node_feat=FEATURES)
    graph = load("amazon2m", SourceOptions(seed=1))
    assert graph.name == "amazon2m"
    assert np.bincount(graph.split).tolist() == [0, 4, 3, 2]
    with pytest.raises(PartitionError, match="amazon2m has no official split"):
        load("amazon2m", SourceOptions(split="official"))


def test_proteins_average_their_edges(data: Path) -> None:
    answers = np.random.default_rng(1).integers(0, 2, (NODES, 112))
    weights = np.round(np.random.default_rng(2).random((len(EDGES), 8)), 3)
    lay_out(data / "ogbn_proteins", "species", answers, edge_feat=weights)
    graph = load("ogbn-proteins", SourceOptions())
    both = np.concatenate([EDGES, EDGES[:, ::-1]])
    for node in range(NODES):
        around = np.concatenate([weights, weights])[both[:, 0] == node]
        wanted = around.mean(axis=0) if len(around) else np.zeros(8)
        assert np.allclose(graph.features[node], wanted, atol=1e-6)
    assert np.array_equal(graph.labels, answers)
    assert (graph.task, graph.num_classes, len(graph.sources)) == ("multi", 112, len(EDGES))
    assert np.bincount(graph.split).tolist() == [0, 4, 2, 3]
    assert counts("ogbn-proteins", SourceOptions()).features == 8


def test_damaged_or_missing_files_are_refused_in_one_line(data: Path) -> None:
    folder = lay_out(data / "ogbn_arxiv", "time", LABELS, node_feat=FEATURES)
    (folder / "split" / "time" / "test.csv.gz").unlink()
    with pytest.raises(PartitionError, match=r"test.csv.gz does not exist"):
        load("ogbn-arxiv", SourceOptions())
    whole = (folder / "raw" / "node-feat.csv.gz").read_bytes()
    (folder / "raw" / "node-feat.csv.gz").write_bytes(whole[:40])
    with pytest.raises(PartitionError, match="raw cannot be read"):
        load("ogbn-arxiv", SourceOptions())
    (folder / "raw" / "edge.csv.gz").unlink()
    with pytest.raises(PartitionError, match="raw cannot be read"):
        load("ogbn-arxiv", SourceOptions())


def test_counts_and_labels_are_checked(data: Path) -> None:
    folder = lay_out(data / "ogbn_arxiv", "time", LABELS, node_feat=FEATURES)
    write(folder / "raw" / "num-node-list.csv.gz", [10**12])
    with pytest.raises(PartitionError, match="has 9 entries, but there are 1000000000000 nodes"):
        load("ogbn-arxiv", SourceOptions())
    write(folder / "raw" / "num-node-list.csv.gz", [NODES])
    write(folder / "raw" / "node-label.csv.gz", np.where(LABELS == 4, 2**30, LABELS))
    with pytest.raises(PartitionError, match=r"1 labels are outside .* the first is 1073741824 at node 4"):
        load("ogbn-arxiv", SourceOptions())
    write(folder / "raw" / "node-label.csv.gz", ["a"] * NODES)
    with pytest.raises(PartitionError, match=r"node-label.csv.gz cannot be read \(object instead of numbers\)"):
        load("ogbn-arxiv", SourceOptions())


@pytest.mark.parametrize("name", ["ogbn-products", "ogbn-proteins", "ogbn-arxiv", "amazon2m"])
def test_a_dataset_that_is_not_here_says_where_to_put_it(data: Path, name: str) -> None:
    for read in (load, counts):
        with pytest.raises(
            PartitionError, match=f"{name} is not here and is not downloaded: .*{data}.*unpack"
        ) as caught:
            read(name, SourceOptions())
        assert "\n" not in str(caught.value)


def test_importing_ogb_asks_the_network_nothing() -> None:
    code = (
        "import sys, threading; from nfdist.partitioning.sources.ogb_door import ogb_reader; ogb_reader();"
        "import ogb.version; assert ogb.version.check_outdated is None; assert 'outdated' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
