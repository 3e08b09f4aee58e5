"""OGB's node datasets, from the raw files of its archives: its own cache is a pickle."""

import contextlib
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.partition.sources.checking import check_edges, check_length
from nfdist.partition.sources.ogb_door import ogb_reader
from nfdist.partition.sources.raw import RawSource
from nfdist.reading import reading
from nfdist.store.graph import TEST, TRAIN, VALID

_SCHEMES = {
    "ogbn-products": "sales_ranking",
    "amazon2m": "sales_ranking",
    "ogbn-proteins": "species",
    "ogbn-arxiv": "time",
}
_SPLIT_FILES = {TRAIN: "train.csv.gz", VALID: "valid.csv.gz", TEST: "test.csv.gz"}


def read(folder: Path, name: str) -> RawSource:
    """The graph of a dataset's folder, each edge as its file lists it, with OGB's official split."""
    reader = ogb_reader()
    # ogb prints to stdout, where results go, and draws a bar for a single graph.
    quiet = io.StringIO()
    with reading(folder / "raw"), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        graph = reader.read_csv_graph_raw(str(folder / "raw"))[0]
    num_nodes = int(graph["num_nodes"])
    labels = _read_numbers(folder / "raw" / "node-label.csv.gz")
    check_length(f"{folder}/raw/node-label.csv.gz", len(labels), num_nodes)  # before memory is taken for so many
    ends = np.int32 if num_nodes < 1 << 31 else np.int64
    check_edges(name, graph["edge_index"][0], graph["edge_index"][1], num_nodes)
    sources, targets = graph["edge_index"].astype(ends)
    features, notes = graph["node_feat"], []
    if features is None:
        if graph["edge_feat"] is None:
            raise PartitionError(f"{folder}/raw has neither node-feat.csv.gz nor edge-feat.csv.gz: unpack it again")
        features = _mean_of_incident(graph["edge_feat"], sources, targets, num_nodes)
        notes.append("node features are the mean of the features of a node's edges")
    return RawSource(name, sources, targets, features, labels, members=_read_split(folder, name), notes=notes)


def read_sizes(folder: Path) -> tuple[int, int, int]:
    """The numbers of nodes, listed edges and features, from the small files and one line of a large one."""
    raw = folder / "raw"
    num_nodes, num_edges = (int(_read_numbers(raw / f"num-{what}-list.csv.gz").sum()) for what in ("node", "edge"))
    path = raw / "node-feat.csv.gz"
    path = path if path.exists() else raw / "edge-feat.csv.gz"
    if min(num_nodes, num_edges) < 0:
        raise PartitionError(f"{raw} counts {num_nodes} nodes and {num_edges} edges: unpack it again")
    with reading(path), gzip.open(path, "rt") as lines:
        return num_nodes, num_edges, len(lines.readline().split(","))


def _read_split(folder: Path, name: str) -> dict[int, NDArray[Any]] | None:
    place = folder / "split" / _SCHEMES[name]
    if not place.is_dir():
        return None
    return {code: _read_numbers(place / file)[:, 0] for code, file in _SPLIT_FILES.items()}


def _read_numbers(path: Path) -> NDArray[Any]:
    """A table of numbers without a header, [rows, columns]; what is missing is NaN."""
    with reading(path):
        table = pyarrow.csv.read_csv(path, read_options=pyarrow.csv.ReadOptions(autogenerate_column_names=True))
        numbers = np.stack([column.to_numpy() for column in table.columns], axis=1)
        if numbers.dtype.kind not in "iuf":
            raise ValueError(f"{numbers.dtype} instead of numbers")
        return numbers


def _mean_of_incident(
    edge_features: NDArray[Any], sources: NDArray[Any], targets: NDArray[Any], num_nodes: int
) -> NDArray[np.float32]:
    """The mean over the edges at either end of a node, as if each edge were listed in both directions."""
    degrees = np.bincount(sources, minlength=num_nodes) + np.bincount(targets, minlength=num_nodes)
    features = np.empty((num_nodes, edge_features.shape[1]), np.float32)
    for column, values in enumerate(edge_features.T):
        sums = np.bincount(sources, values, num_nodes) + np.bincount(targets, values, num_nodes)
        features[:, column] = sums / np.maximum(degrees, 1)
    return features
