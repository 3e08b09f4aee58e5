"""Where a SOURCE is: a known name looked up in $NFDIST_DATA, or a path whose form tells its kind."""

import difflib
import os
from dataclasses import dataclass
from pathlib import Path

from nfdist.errors import PartitionError
from nfdist.reading import reading

FILE_NAMES = ("cora", "citeseer", "pubmed", "actor", "deezer-europe")  # files of the data folder, nowhere else
OGB_NAMES = ("ogbn-products", "ogbn-proteins", "ogbn-arxiv", "amazon2m")
NAMES = (*FILE_NAMES, "20news", "digits", *OGB_NAMES, "amazon2m-like")

NEWS_FOLDERS = ("20news-bydate-train", "20news-bydate-test")
_NPZ_ARRAYS = "edge_index, feat and label"
_DGL_SUFFIXES = (".bin", ".dgl")


@dataclass(frozen=True)
class Located:
    """A source's name, its kind (npz, tables, dgl, dgl-partition, ogb, digits, news or synthetic) and its path."""

    name: str
    kind: str
    path: Path | None = None


def locate(source: str) -> Located:
    """The source behind a name or a path; a name wins over a path spelled the same."""
    if not source:
        raise PartitionError("source is empty: name a dataset or a path")
    with reading(source[:200]):  # a name that is no path, such as one of thousands of characters
        return _locate(source)


def _locate(source: str) -> Located:
    folder = data_folder()
    if source == "amazon2m-like":
        return Located(source, "synthetic")
    if source in NAMES or not _looks_like_path(source):
        stored = _stored(source, folder)
        if stored is not None:
            return stored
    if source == "digits":
        return Located(source, "digits")
    if source == "20news":
        return Located(source, "news", folder)
    if source in NAMES:
        raise PartitionError(_where_to_put(source, folder))
    return _by_path(Path(source))


def data_folder() -> Path | None:
    """The folder of named datasets, if the user has one."""
    folder = os.environ.get("NFDIST_DATA")
    return Path(folder).expanduser() if folder else None


def _looks_like_path(source: str) -> bool:
    return Path(source).exists() or os.sep in source


def _stored(name: str, folder: Path | None) -> Located | None:
    """A dataset of the data folder: an npz, a folder of tables or, for OGB's names, ogb's own layout."""
    names = (name, "ogbn-products") if name == "amazon2m" else (name,)
    for spelled in names:
        if folder is not None and (folder / f"{spelled}.npz").is_file():
            return Located(name, "npz", folder / f"{spelled}.npz")
        for candidate in _ogb_folders(spelled, folder) if name in OGB_NAMES else []:
            if (candidate / "raw").is_dir():
                return Located(name, "ogb", candidate)
    if folder is not None and _is_tables(folder / name):
        return Located(name, "tables", folder / name)
    return None


def _ogb_folders(name: str, folder: Path | None) -> list[Path]:
    """Where ogb's loader leaves a dataset, or a user its unpacked archive; `dataset` is the loader's own default."""
    spelled, archive = name.replace("-", "_"), name.removeprefix("ogbn-")
    inside = [] if folder is None else [folder / spelled, folder / "ogb" / spelled, folder / archive]
    return [*inside, Path("dataset") / spelled]


def _where_to_put(name: str, folder: Path | None) -> str:
    looked = "$NFDIST_DATA names no folder" if folder is None else f"{name}.npz is not in {folder} ($NFDIST_DATA)"
    if name not in OGB_NAMES:
        return f"{name} is not here and is not downloaded: {looked}; put {name}.npz there, with {_NPZ_ARRAYS}"
    dataset = "ogbn-products" if name == "amazon2m" else name
    places = ", ".join(map(str, _ogb_folders(dataset, folder)))
    return (
        f"{name} is not here and is not downloaded: {looked}, and none of {places} has raw/; unpack ogb's archive of "
        f"{dataset} as {dataset.replace('-', '_')} in $NFDIST_DATA, or put {name}.npz there, with {_NPZ_ARRAYS}"
    )


def _by_path(path: Path) -> Located:
    if path.is_dir():
        if _is_tables(path):
            return Located(path.name, "tables", path)
        raise PartitionError(f"{path} has no nodes.parquet (or nodes.csv) and edges.parquet (or edges.csv): add them")
    if not path.exists():
        nearest = difflib.get_close_matches(str(path), NAMES, n=1, cutoff=0.6)
        hint = f"did you mean {nearest[0]}?" if nearest else f"the names are {', '.join(NAMES)}"
        if path.suffix:
            raise PartitionError(f"{path} does not exist: check the path, or make the file")
        raise PartitionError(f"source {str(path)!r} is neither a file nor a known name: {hint}")
    if path.suffix == ".npz":
        return Located(path.stem, "npz", path)
    if path.suffix in _DGL_SUFFIXES:
        return Located(path.stem, "dgl", path)
    if path.suffix == ".json":
        return Located(path.stem, "dgl-partition", path)
    if path.suffix in (".csv", ".parquet"):
        raise PartitionError(
            f"{path} alone is not a graph: name a folder that holds nodes{path.suffix} and edges{path.suffix}"
        )
    raise PartitionError(
        f"{path} is of no known kind: name an .npz, a folder of tables, a DGL graph (.bin, .dgl) or a partition's .json"
    )


def _is_tables(folder: Path) -> bool:
    """Whether a folder has nodes or edges; the reader says which of the two is missing."""
    return any((folder / f"{what}{suffix}").exists() for what in ("nodes", "edges") for suffix in (".parquet", ".csv"))
