"""MappedPart: the files of one part as tensors that view the mapped disk."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from nfdist.errors import PartitionError
from nfdist.store.arrow_files import as_tensor, map_columns
from nfdist.store.manifest import Manifest, part_file


@dataclass(frozen=True)
class SparseRows:
    """Features as compressed rows: entries indptr[r] .. indptr[r + 1] - 1 are those of row r."""

    indptr: Tensor
    indices: Tensor
    values: Tensor


@dataclass(frozen=True)
class MappedPart:
    """Node ids start .. stop - 1 are the local rows 0, 1, ... of every tensor here; none may be written to."""

    start: int
    stop: int
    features: Tensor | SparseRows
    labels: Tensor
    split: Tensor
    original_ids: Any
    indptr: Tensor
    sources: Tensor

    @staticmethod
    def open(directory: Path, number: int, manifest: Manifest) -> "MappedPart":
        """Map the files of a part and check that they have the lengths and types of the manifest."""
        files = PartFiles(directory, number)
        counts = manifest.parts[number]
        rows = counts.num_nodes
        dtype = getattr(torch, manifest.feature_dtype)
        index_type = getattr(torch, manifest.index_type)
        label_type = torch.int8 if manifest.label_shape else torch.int64
        features: Tensor | SparseRows
        if manifest.feature_kind == "dense":
            features = files.tensor("nodes", "features", (rows, manifest.num_features), dtype)
        else:
            indptr = files.tensor("features-indptr", "indptr", (rows + 1,))
            entries = (int(indptr[-1]),)
            indices = files.tensor("features-indices", "indices", entries, indptr.dtype)
            features = SparseRows(indptr, indices, files.tensor("features-values", "values", entries, dtype))
        return MappedPart(
            start=counts.start,
            stop=counts.stop,
            features=features,
            labels=files.tensor("nodes", "label", (rows, *manifest.label_shape), label_type),
            split=files.tensor("nodes", "split", (rows,), torch.int8),
            original_ids=files.column("nodes", "original_id", rows),
            indptr=files.tensor("indptr", "indptr", (rows + 1,), index_type),
            sources=files.tensor("sources", "sources", (counts.edges,), index_type),
        )


class PartFiles:
    """The columns of a part's files, each file mapped once."""

    def __init__(self, directory: Path, number: int) -> None:
        self._directory, self._number = directory, number
        self._mapped: dict[str, dict[str, Any]] = {}

    def column(self, file: str, name: str, rows: int) -> Any:
        path = self._directory / part_file(self._number, file)
        if file not in self._mapped:
            self._mapped[file] = map_columns(path)
        column = self._mapped[file].get(name)
        if column is None:
            raise PartitionError(f"{path} has no column {name}: partition again")
        if len(column) != rows or column.null_count:
            raise PartitionError(f"{path} has {len(column)} rows of {name} instead of {rows}: partition again")
        return column

    def tensor(self, file: str, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        column = self.column(file, name, shape[0])
        try:
            tensor = as_tensor(column)
        except (pa.ArrowException, TypeError, ValueError):
            tensor = None
        if tensor is None or tuple(tensor.shape) != shape or (dtype is not None and tensor.dtype != dtype):
            path = self._directory / part_file(self._number, file)
            raise PartitionError(f"{path} has {name} of type {column.type}, not as its manifest says: partition again")
        return tensor
