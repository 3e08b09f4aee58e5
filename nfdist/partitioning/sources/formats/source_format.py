"""SourceFormat: how a kind of source is recognized, counted and read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nfdist.partitioning.sources import feature_rows
from nfdist.partitioning.sources.options import SourceOptions
from nfdist.partitioning.sources.raw_graph import RawGraph
from nfdist.partitioning.workspace import Workspace
from nfdist.store.source_graph import SourceGraph


@dataclass(frozen=True)
class SourceCounts:
    """What a loaded source would hold: `edges` as listed, before symmetrizing; `nonzeros` None for dense features."""

    nodes: int
    edges: int
    features: int
    nonzeros: int | None
    dtype: str

    @staticmethod
    def of(raw: RawGraph) -> "SourceCounts":
        """The counts of a source that has to be read for them."""
        rows = feature_rows.prepare(raw.features, raw.name)
        nodes, width = rows.shape
        return SourceCounts(nodes, len(raw.sources), width, getattr(rows, "nnz", None), str(rows.dtype))

    @staticmethod
    def of_graph(graph: SourceGraph) -> "SourceCounts":
        """The counts of a source that was read."""
        entries = getattr(graph.features, "nnz", None)
        width, dtype = graph.features.shape[1], str(graph.features.dtype)
        return SourceCounts(graph.num_nodes, len(graph.sources), width, entries, dtype)


@dataclass(frozen=True)
class SourceFormat:
    """One way to store a graph, or to make one.

    `read(path, name, options, workspace)`, which puts large arrays into the workspace, and `count(path, options)`,
    which need not load it, get the path that was found, None where there is none. Formats are asked by ascending
    `order`: a name is theirs that `find(name, data folder)` knows or, without that, one of their own `datasets`; a path
    that exists is theirs if they `recognize` it.
    """

    name: str
    order: int
    read: Callable[[Any, str, SourceOptions, Workspace], RawGraph]
    count: Callable[[Any, SourceOptions], SourceCounts] | None = None  # without it, the source is read to be counted
    recognize: Callable[[Path], bool] = lambda path: False
    description: str = ""  # of the paths it recognizes, for whoever named another
    find: Callable[[str, Path | None], "Located | None"] | None = None
    datasets: tuple[str, ...] = ()
    where_to_put: Callable[[str, Path | None], str] = lambda name, folder: f"{name} is not here"
    options: tuple[str, ...] = ()  # what it heeds of the options that not every format does


@dataclass(frozen=True)
class Located:
    """A source's name, its format and, unless it is made on the spot, its path."""

    name: str
    format: SourceFormat
    path: Path | None = None


FORMATS: list[SourceFormat] = []


def register(new: SourceFormat) -> SourceFormat:
    """Let sources have this format."""
    FORMATS.append(new)
    FORMATS.sort(key=lambda known: (known.order, known.name))
    return new


def has_suffix(*suffixes: str) -> Callable[[Path], bool]:
    """Recognize files by how their names end."""
    return lambda path: path.suffix in suffixes and not path.is_dir()
