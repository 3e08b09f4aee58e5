"""MappedPart: the files of one part as columns that view the mapped disk."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdist.errors import PartitionError
from nfdist.store.arrow_files import checked_column, map_columns
from nfdist.store.gate import CURE, Column, Gate, StoredFile, WholeFile
from nfdist.store.ids import IdColumn
from nfdist.store.manifest import Manifest, part_file
from nfdist.store.ranges import Integers


@dataclass(frozen=True)
class SparseRows:
    """Features as compressed rows: entries indptr[r] .. indptr[r + 1] - 1 are those of row r."""

    indptr: Column
    indices: Column
    values: Column


@dataclass(frozen=True)
class MappedPart:
    """Node ids start .. stop - 1 are the local rows 0, 1, ... of every column here."""

    start: int
    stop: int
    features: Column | SparseRows
    labels: Column
    split: Column
    original_ids: IdColumn
    indptr: Column
    sources: Column
    weights: Column | None = None

    @staticmethod
    def open(directory: Path, number: int, manifest: Manifest) -> "MappedPart":
        """Map the files of a part and check that they have the lengths and types of the manifest."""
        files = PartFiles(directory, number, manifest.files)
        counts = manifest.parts[number]
        rows = counts.num_nodes
        dtype = getattr(torch, manifest.feature_dtype)
        index_type = getattr(torch, manifest.index_type)
        label_type = torch.int8 if manifest.label_shape else torch.int64
        features: Column | SparseRows
        if manifest.feature_kind == "dense":
            features = files.column("nodes", "features", (rows, manifest.num_features), dtype)
        else:
            indptr = files.column("features-indptr", "indptr", (rows + 1,))
            entries = (int(indptr.rows(rows)[0]),)
            indices = files.column("features-indices", "indices", entries, indptr.dtype)
            features = SparseRows(indptr, indices, files.column("features-values", "values", entries, dtype))
        return MappedPart(
            start=counts.start,
            stop=counts.stop,
            features=features,
            labels=files.column("nodes", "label", (rows, *manifest.label_shape), label_type),
            split=files.column("nodes", "split", (rows,), torch.int8),
            original_ids=IdColumn(files.arrow("nodes", "original_id", rows), files.gate("nodes")),
            indptr=files.column("indptr", "indptr", (rows + 1,), index_type),
            sources=files.column("sources", "sources", (counts.edges,), index_type),
            weights=files.column("weights", "weights", (counts.edges,), torch.float32) if manifest.weighted else None,
        )

    def in_edges(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Offsets [stop - start + 1] of consecutive rows, and sources, of which only theirs may be used."""
        indptr = self.indptr.rows(start, stop + 1)
        first, last = int(indptr[0]), int(indptr[-1])
        if bool((indptr[1:] < indptr[:-1]).any()):
            raise PartitionError(
                f"the in-edges of node {self.start + start} and after are not in order: partition again"
            )
        return indptr, self.sources.at(np.array([first]), last - first)

    def in_edges_of(self, rows: Integers) -> tuple[NDArray[np.int64], Integers, NDArray[Any]]:
        """Where the sources of every row begin, how many there are, and sources; only theirs may be used."""
        indptr = self.indptr.at(rows, 2).numpy()
        starts = indptr.take(rows).astype(np.int64, copy=False)
        counts = indptr.take(rows + 1) - starts
        return starts, counts, self.sources.at(starts, counts).numpy()

    def weighing(self) -> Column:
        """The weights of all in-edges; the copies of an edge that is there twice have their sum each, loops 1."""
        if self.weights is None:
            raise PartitionError("the edges have no weights: partition a graph whose edges have a column named weight")
        return self.weights

    def in_edge_weights(self, start: int, stop: int) -> Tensor:
        """The weights beside the sources of consecutive rows, of which only theirs may be used."""
        indptr = self.indptr.rows(start, stop + 1)
        return self.weighing().at(indptr[:1].numpy(), int(indptr[-1] - indptr[0]))


class PartFiles:
    """The columns of a part's files, each file mapped once."""

    def __init__(
        self, directory: Path, number: int, stored: Mapping[str, StoredFile | WholeFile], cure: str = CURE
    ) -> None:
        self._directory, self._number, self._stored, self._cure = directory, number, stored, cure
        self._mapped: dict[str, tuple[Gate, dict[str, Any]]] = {}

    def gate(self, file: str) -> Gate:
        return self._open(file)[0]

    def arrow(self, file: str, name: str, rows: int) -> Any:
        """A column as Arrow has it, its content unchecked."""
        gate, columns = self._open(file)
        column = columns.get(name)
        if column is None:
            raise PartitionError(f"{gate.path} has no column {name}: {CURE}")
        if len(column) != rows or column.null_count:
            raise PartitionError(f"{gate.path} has {len(column)} rows of {name} instead of {rows}: {CURE}")
        return column

    def column(self, file: str, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Column:
        """A column of numbers; `shape` and, where given, `dtype` must be its own."""
        arrow = self.arrow(file, name, shape[0])
        try:
            column = checked_column(arrow, self.gate(file))
        except (pa.ArrowException, TypeError, ValueError):
            column = None
        if column is None or column.shape != shape or (dtype is not None and column.dtype != dtype):
            path = self.gate(file).path
            raise PartitionError(f"{path} has {name} of type {arrow.type}, not as its manifest says: {CURE}")
        return column

    def _open(self, file: str) -> tuple[Gate, dict[str, Any]]:
        if file not in self._mapped:
            name = part_file(self._number, file)
            gate = Gate(self._directory / name, self._stored[name], self._cure)
            self._mapped[file] = gate, map_columns(gate)
        return self._mapped[file]
