"""Graphs in an .npz file, read without unpickling anything."""

import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.partition.sources import splits
from nfdist.partition.sources.checking import check_column, reading
from nfdist.partition.sources.options import SourceOptions
from nfdist.partition.sources.raw import RawSource

CSR_PARTS = ("feat_indptr", "feat_indices", "feat_data", "feat_shape")
# Such as train_idx, val_mask, geomgcn_train_masks [s, n] and cuai_split_train [s, m]: the prefix names a set of splits.
_MEMBERS = re.compile(r"(?P<set>.*?)(?P<word>train|val|valid|validation|test)_(?P<form>idx|mask|masks)")
_LISTED = re.compile(r"(?P<set>.*)split_(?P<word>train|val|valid|validation|test)")


def read(path: Path, name: str, options: SourceOptions) -> RawSource:
    """The graph of an .npz: `edge_index`, features, `label` and splits; other arrays are ignored with a note.

    Labels and ids may be other arrays, named as columns are; edges are row numbers all the same.
    """
    with open_arrays(path) as arrays:
        features = _read_features(arrays, path)
        edges = arrays["edge_index"] if "edge_index" in arrays.files else np.empty((2, 0), np.int64)
        for wanted in filter(None, (options.label_column, options.id_column)):
            check_column(str(path), wanted, arrays.files)
        label = options.label_column or "label"
        labels = arrays[label] if label in arrays.files else None
        ids = arrays[options.id_column] if options.id_column else None
        chosen = _choose_splits(arrays.files)
        members = {code: _as_member(key, arrays[key]) for code, key in chosen.items()}
        used = {"edge_index", "feat", label, options.id_column, *CSR_PARTS, *chosen.values()}
        ignored = [key for key in arrays.files if key not in used]
    if edges.ndim != 2 or len(edges) != 2:
        raise PartitionError(f"{path}: edge_index must be [2, edges], sources first, got {list(edges.shape)}")
    notes = [f"ignored arrays: {', '.join(ignored)}"] if ignored else []
    return RawSource(name, edges[0], edges[1], features, labels, ids, members or None, notes=notes)


@contextmanager
def open_arrays(path: Path) -> Iterator[Any]:
    """The arrays of an .npz by name, refused when they cannot be read."""
    # numpy leaves a damaged file open that it opened itself, and takes a file that is no archive for a single array.
    with reading(path), path.open("rb") as stream:
        if not zipfile.is_zipfile(stream):
            raise zipfile.BadZipFile("not a whole zip archive")
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as arrays:
            yield arrays


def read_header(path: Path, key: str) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """The shape and dtype of an array without its data, or None where there is none."""
    with reading(path), zipfile.ZipFile(path) as archive:
        if f"{key}.npy" not in archive.namelist():
            return None
        with archive.open(f"{key}.npy") as stream:
            version = npy_format.read_magic(stream)
            header = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
            shape, _, dtype = header(stream)
    return shape, dtype


def _read_features(arrays: Any, path: Path) -> Any:
    if "feat" in arrays.files:
        return arrays["feat"]
    missing = [key for key in CSR_PARTS if key not in arrays.files]
    if missing:
        raise PartitionError(f"{path} has no features: add feat [nodes, columns], or the missing {', '.join(missing)}")
    indptr, indices, data, shape = (arrays[key] for key in CSR_PARTS)
    if len(shape) != 2 or len(indices) != len(data):
        raise PartitionError(
            f"{path}: feat_shape {shape.tolist()}, {len(indices)} feat_indices and {len(data)} feat_data"
        )
    rows = scipy.sparse.csr_array((data, indices, indptr), shape=tuple(map(int, shape)))
    rows.check_format(full_check=True)  # column numbers out of range would crash later, in compiled code
    return rows


def _choose_splits(keys: Iterable[str]) -> dict[int, str]:
    """The arrays of one set of splits by split code: the set without a prefix if there is one, else the first."""
    sets: dict[str, dict[int, str]] = {}
    for key in keys:
        match = _MEMBERS.fullmatch(key) or _LISTED.fullmatch(key)
        if match:
            sets.setdefault(match["set"], {}).setdefault(splits.WORDS[match["word"]], key)
    whole = {name: found for name, found in sets.items() if len(found) == 3}
    return whole.get("") or next(iter(whole.values()), {})


def _as_member(key: str, listed: NDArray[Any]) -> NDArray[Any]:
    return listed.astype(np.bool_) if key.endswith(("_mask", "_masks")) else listed
