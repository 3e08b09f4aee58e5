"""Where a SOURCE is: a known name, looked up in $NFDIST_DATA, or a path; the first format that knows it takes it."""

import difflib
import os
from pathlib import Path

from nfdist.errors import PartitionError
from nfdist.partitioning.sources.formats.source_format import FORMATS, Located
from nfdist.reading import reading


def dataset_names() -> list[str]:
    """The datasets that are known by name."""
    return sorted(name for known in FORMATS for name in known.datasets)


def locate(source: str) -> Located:
    """The source behind a name or a path; a name wins over a path spelled the same."""
    if not source:
        raise PartitionError("source is empty: name a dataset or a path")
    with reading(source[:200]):  # a name that is no path, such as one of thousands of characters
        return _by_name(source) or _by_path(Path(source))


def _by_name(source: str) -> Located | None:
    folder = Path(value).expanduser() if (value := os.environ.get("NFDIST_DATA")) else None
    if source not in dataset_names() and (Path(source).exists() or os.sep in source):
        return None
    for known in FORMATS:
        if found := known.find(source, folder) if known.find else source in known.datasets and Located(source, known):
            return found
    for known in FORMATS:
        if source in known.datasets:
            raise PartitionError(known.where_to_put(source, folder))
    return None


def _by_path(path: Path) -> Located:
    if path.exists():
        for known in FORMATS:
            if known.recognize(path):
                return Located(path.name if path.is_dir() else path.stem, known, path)
    raise PartitionError(_unrecognized(path))


def _unrecognized(path: Path) -> str:
    """Why a path is no source, and what to do about it."""
    if path.is_dir():
        return f"{path} has no nodes.parquet (or nodes.csv) and edges.parquet (or edges.csv): add them"
    if not path.exists():
        if path.suffix:
            return f"{path} does not exist: check the path, or make the file"
        nearest = difflib.get_close_matches(str(path), dataset_names(), n=1, cutoff=0.6)
        hint = f"did you mean {nearest[0]}?" if nearest else f"the names are {', '.join(dataset_names())}"
        return f"source {str(path)!r} is neither a file nor a known name: {hint}"
    if path.suffix in (".csv", ".parquet"):
        return f"{path} alone is not a graph: name a folder that holds nodes{path.suffix} and edges{path.suffix}"
    *others, last = (known.description for known in FORMATS if known.description)
    return f"{path} is of no known kind: name {', '.join(others)} or {last}"
