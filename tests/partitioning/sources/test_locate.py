"""Names: what lies in the data folder, and what is not here."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from nfdist.errors import PartitionError
from nfdist.partitioning.sources import SourceCounts, SourceOptions, counts, dataset_names, load


def test_the_data_folder_is_looked_at_first(data: Path) -> None:
    arrays: dict[str, Any] = {"edge_index": np.zeros((2, 1), int), "feat": np.ones((3, 2)), "label": np.arange(3)}
    for name in ("cora", "digits", "20news", "ogbn-arxiv", "amazon2m", "mine"):
        np.savez(data / f"{name}.npz", **arrays)
        graph = load(name, SourceOptions())
        assert (graph.name, graph.num_nodes) == (name, 3)


@pytest.mark.parametrize(
    "name", [name for name in dataset_names() if not name.startswith("digits") and not name.endswith("-like")]
)
@pytest.mark.parametrize("folder", [True, False])
def test_a_name_that_is_not_here(data: Path, monkeypatch: pytest.MonkeyPatch, name: str, folder: bool) -> None:
    if not folder:
        monkeypatch.delenv("NFDIST_DATA")
    with pytest.raises(
        PartitionError, match=f"{name} is not here and is not downloaded: .*NFDIST_DATA|{data}"
    ) as caught:
        load(name, SourceOptions())
    assert "\n" not in str(caught.value)
    assert f"{name}.npz" in str(caught.value)


def test_unknown_sources_are_refused(data: Path) -> None:
    with pytest.raises(PartitionError, match="neither a file nor a known name: did you mean cora"):
        load("corra", SourceOptions())
    with pytest.raises(PartitionError, match=r"gone.npz does not exist"):
        load("gone.npz", SourceOptions())
    (data / "notes.txt").touch()
    with pytest.raises(PartitionError, match=r"notes.txt is of no known kind"):
        load("notes.txt", SourceOptions())
    with pytest.raises(PartitionError, match=r"has no nodes.parquet"):
        load(".", SourceOptions())
    with pytest.raises(PartitionError, match="source is empty: name a dataset or a path"):
        load("", SourceOptions())


# name: nodes, listed edges, features, classes, split sizes
REAL = {
    "cora": (2708, 10858, 1433, 7, [1068, 140, 500, 1000]),
    "citeseer": (3327, 9464, 3703, 6, [1707, 120, 500, 1000]),
    "pubmed": (19717, 88676, 500, 3, [18157, 60, 500, 1000]),
    "actor": (7600, 33391, 932, 5, [0, 3648, 2432, 1520]),
    "deezer-europe": (28281, 92752, 31241, 2, [0, 14140, 7070, 7071]),
    "20news": (9607, 0, 236, 10, [0, 4804, 2401, 2402]),
}


@pytest.mark.parametrize("name", REAL)
def test_real_datasets_have_their_published_shape(name: str) -> None:
    folder = os.environ.get("NFDIST_DATA")
    if not folder or not (Path(folder) / f"{name}.npz").exists():
        pytest.skip(f"{name}.npz is not in $NFDIST_DATA")
    nodes, edges, features, classes, split = REAL[name]
    graph = load(name, SourceOptions())
    assert graph.features.shape == (nodes, features)
    assert (len(graph.sources), graph.num_classes) == (edges, classes)
    assert np.bincount(graph.split, minlength=4).tolist() == split
    nonzeros = graph.features.nnz if scipy.sparse.issparse(graph.features) else None
    assert counts(name, SourceOptions()) == SourceCounts(nodes, edges, features, nonzeros, "float32")
