"""ogb: OGB's node datasets, from the raw files of its archives: its own cache is a pickle."""

import contextlib
import gzip
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.partitioning.sources import splits
from nfdist.partitioning.sources.formats import npz
from nfdist.partitioning.sources.formats.source_format import Located, SourceCounts, SourceFormat, register
from nfdist.partitioning.sources.ogb_door import ogb_reader
from nfdist.partitioning.sources.options import SourceOptions
from nfdist.partitioning.sources.raw_graph import RawGraph
from nfdist.partitioning.sources.validation import check_edges, check_length
from nfdist.partitioning.workspace import Workspace
from nfdist.reading import reading
from nfdist.store.source_graph import TEST, TRAIN, VALID

_SCHEMES = {  # of the official split
    "ogbn-products": "sales_ranking",
    "ogbn-proteins": "species",
    "ogbn-arxiv": "time",
    "amazon2m": "sales_ranking",
}
_SPLIT_FILES = {TRAIN: "train.csv.gz", VALID: "valid.csv.gz", TEST: "test.csv.gz"}


def find(name: str, folder: Path | None) -> Located | None:
    """The folder of a dataset, where ogb or its user left it; Amazon2M is ogbn-products, which may be an .npz too."""
    for spelled in dict.fromkeys((name, _dataset(name))) if name in _SCHEMES else ():
        if stored := npz.find(spelled, folder):
            return replace(stored, name=name)
        for candidate in _folders(spelled, folder):
            if (candidate / "raw").is_dir():
                return Located(name, FORMAT, candidate)
    return None


def where_to_put(name: str, folder: Path | None) -> str:
    dataset = _dataset(name)
    places = ", ".join(map(str, _folders(dataset, folder)))
    return (
        f"{npz.where_to_look(name, folder)}, and none of {places} has raw/; unpack ogb's archive of {dataset} as "
        f"{dataset.replace('-', '_')} in $NFDIST_DATA, or put {name}.npz there, with {npz.ARRAYS}"
    )


def _dataset(name: str) -> str:
    return "ogbn-products" if name == "amazon2m" else name


def _folders(name: str, folder: Path | None) -> list[Path]:
    """Where ogb's loader leaves a dataset, or a user its unpacked archive; `dataset` is the loader's own default."""
    spelled, archive = name.replace("-", "_"), name.removeprefix("ogbn-")
    inside = [] if folder is None else [folder / spelled, folder / "ogb" / spelled, folder / archive]
    return [*inside, Path("dataset") / spelled]


def read(folder: Path, name: str, options: SourceOptions, workspace: Workspace) -> RawGraph:
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
    return RawGraph(name, sources, targets, features, labels, members=_read_split(folder, name), notes=notes)


def count(folder: Path, options: SourceOptions) -> SourceCounts:
    """The counts of a dataset, from the small files and one line of a large one."""
    raw = folder / "raw"
    num_nodes, num_edges = (int(_read_numbers(raw / f"num-{what}-list.csv.gz").sum()) for what in ("node", "edge"))
    path = raw / "node-feat.csv.gz"
    path = path if path.exists() else raw / "edge-feat.csv.gz"
    if min(num_nodes, num_edges) < 0:
        raise PartitionError(f"{raw} counts {num_nodes} nodes and {num_edges} edges: unpack it again")
    with reading(path), gzip.open(path, "rt") as lines:
        return SourceCounts(num_nodes, num_edges, len(lines.readline().split(",")), None, "float32")


def _read_split(folder: Path, name: str) -> dict[int, NDArray[Any]] | None:
    place = folder / "split" / _SCHEMES[name]
    if not place.is_dir() or name in splits.UNOFFICIAL:
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


FORMAT = register(SourceFormat("ogb", 20, read, count, find=find, datasets=tuple(_SCHEMES), where_to_put=where_to_put))
