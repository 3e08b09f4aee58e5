"""Store: a partition's nodes and edges, mapped from disk and read by node id."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdist.errors import PartitionError
from nfdist.files import checksum
from nfdist.sparse.adjacency import Adjacency
from nfdist.store import cache
from nfdist.store.gate import Column
from nfdist.store.id_index import IdIndex
from nfdist.store.induced import EDGES_AT_ONCE, Induction
from nfdist.store.manifest import MANIFEST_NAME, Manifest, Part
from nfdist.store.mapped import MappedPart
from nfdist.store.ranges import Integers, joined, offsets
from nfdist.store.rows import Group, dense_rows, sparse_rows, sparse_slice
from nfdist.store.source_graph import SPLIT_NAMES


class Description:
    """What a partition's manifest says about it."""

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory = directory
        self.manifest = manifest

    @property
    def num_nodes(self) -> int:
        return self.manifest.num_nodes

    @property
    def num_edges(self) -> int:
        return self.manifest.num_edges

    @property
    def num_features(self) -> int:
        return self.manifest.num_features

    @property
    def num_classes(self) -> int:
        return self.manifest.num_classes

    @property
    def task(self) -> str:
        return self.manifest.task

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part of the partition, with the range of its node ids."""
        return self.manifest.parts

    def fingerprint(self) -> str:
        """The checksum of manifest.json, which holds those of all other files."""
        path = self.directory / MANIFEST_NAME
        try:
            return checksum(path)
        except OSError as error:
            raise PartitionError(f"{path} cannot be read: {error.strerror}") from None

    def checked(self, node_ids: Tensor) -> NDArray[np.int64]:
        """Node ids as an array, or an error that names the first one outside the graph."""
        if node_ids.ndim != 1 or node_ids.dtype not in (torch.int64, torch.int32):
            raise PartitionError(f"node ids must be integers [k], got {node_ids.dtype} {list(node_ids.shape)}")
        ids: NDArray[np.int64] = node_ids.detach().cpu().numpy().astype(np.int64, copy=False)
        if len(ids) and (ids.min() < 0 or ids.max() >= self.num_nodes):
            outside = ids[(ids < 0) | (ids >= self.num_nodes)][0]
            raise PartitionError(f"node id {outside} is outside the {self.num_nodes} nodes of {self.directory}")
        return ids


class GraphStore(Protocol):
    """A partition to read by node id: all of it on this host, or with `remote` parts that lie on others.

    Then every rank must make each call together with the others. `local` has the parts that are here.
    """

    remote: bool
    directory: Path
    manifest: Manifest

    @property
    def local(self) -> "Store": ...

    @property
    def num_nodes(self) -> int: ...
    @property
    def num_features(self) -> int: ...
    @property
    def num_classes(self) -> int: ...
    @property
    def task(self) -> str: ...

    @property
    def parts(self) -> tuple[Part, ...]: ...

    def fingerprint(self) -> str: ...
    def take(self, node_ids: Tensor, out: Tensor | None = None) -> Tensor: ...
    def labels(self, node_ids: Tensor) -> Tensor: ...
    def split(self, node_ids: Tensor) -> Tensor: ...
    def induced(
        self, node_ids: Tensor, sources: Tensor | None = None, *, loops: bool = False, weights: bool = False
    ) -> Adjacency: ...
    def with_in_edges(self, in_edges: Sequence[Adjacency]) -> "GraphStore": ...


class Store(Description):
    """Reads never copy more than they return. Tensors that view the disk must not be written to.

    Node ids are integer tensors [k] in any order; rows come back in that order.
    """

    remote = False

    def __init__(self, directory: Path, manifest: Manifest, held: dict[int, MappedPart]) -> None:
        super().__init__(directory, manifest)
        self._held = held
        self._bounds = np.array([0, *(part.stop for part in manifest.parts)], dtype=np.int64)
        self._induction = Induction(self.num_nodes)

    @staticmethod
    def open(directory: Path | str, parts: Sequence[int] | None = None) -> "Store":
        """Map a partition, fetched first if it is elsewhere, or some of its parts; what is read is checked then."""
        directory = cache.local_directory(directory, parts)
        manifest = Manifest.read(directory, parts)
        chosen = range(len(manifest.parts)) if parts is None else sorted(set(parts))
        return Store(directory, manifest, {number: MappedPart.open(directory, number, manifest) for number in chosen})

    @staticmethod
    def available_parts(directory: Path | str) -> list[int]:
        """The parts whose directory is there, or of a URI should be: a host need not hold them all."""
        return cache.available_parts(directory)

    @property
    def local(self) -> "Store":
        return self

    @property
    def held_parts(self) -> tuple[int, ...]:
        """The parts this store maps."""
        return tuple(self._held)

    def take(self, node_ids: Tensor, out: Tensor | None = None) -> Tensor:
        """Features [k, f] as stored, in `out` when given; sparse features as a sparse CSR tensor.

        Ascending node ids are the fastest: each part's rows then go straight to their place.
        """
        ids = self.checked(node_ids)
        dtype = getattr(torch, self.manifest.feature_dtype)
        if self.manifest.feature_kind == "sparse":
            if out is not None:
                raise PartitionError("sparse features cannot be taken into a buffer: leave `out` away")
            return sparse_rows(self._groups(ids), len(node_ids), self.num_features, dtype)
        shape = (len(node_ids), self.num_features)
        if out is None:
            out = torch.empty(shape, dtype=dtype)
        elif tuple(out.shape) != shape or out.dtype != dtype:
            raise PartitionError(f"`out` is {out.dtype} {list(out.shape)}, the rows are {dtype} {list(shape)}")
        return self._dense_rows(ids, out, attrgetter("features"))

    def labels(self, node_ids: Tensor) -> Tensor:
        """int64 [k] with -1 for none, or int8 [k, questions]."""
        ids = self.checked(node_ids)
        dtype = torch.int8 if self.manifest.label_shape else torch.int64
        out = torch.empty((len(ids), *self.manifest.label_shape), dtype=dtype)
        return self._dense_rows(ids, out, attrgetter("labels"))

    def split(self, node_ids: Tensor) -> Tensor:
        """int8 [k]: 0 for unassigned, 1 for train, 2 for valid, 3 for test."""
        ids = self.checked(node_ids)
        return self._dense_rows(ids, torch.empty(len(ids), dtype=torch.int8), attrgetter("split"))

    def nodes_in_split(self, name: str) -> Tensor:
        """The node ids of a split among the parts held, ascending."""
        if name not in SPLIT_NAMES:
            raise PartitionError(f"there is no split {name!r}: choose one of {', '.join(SPLIT_NAMES)}")
        number = SPLIT_NAMES.index(name)
        found = [(part.split.rows() == number).nonzero().flatten() + part.start for part in self._held.values()]
        return torch.cat([torch.empty(0, dtype=torch.int64), *found])

    def original_ids(self, node_ids: Tensor) -> NDArray[Any]:
        """What the user calls these nodes: int64, or strings in an array of objects."""
        ids = self.checked(node_ids)
        out = np.empty(len(ids), dtype=np.int64 if self.manifest.id_type == "int64" else object)
        for part, positions, rows in self._groups(ids):
            out[positions] = part.original_ids.take(rows).to_numpy(zero_copy_only=False)
        return out

    def node_ids(self, original_ids: Any) -> Tensor:
        """The node ids [k] of what the user calls them, by binary search on the mapped file."""
        return self._originals.find(original_ids)

    def known_node_ids(self, original_ids: Any) -> NDArray[np.int64]:
        """The node id of each, given as an Arrow array of integers or strings as they are here; -1 for no node."""
        return self._originals.known(original_ids)

    def scan(self, rows_at_once: int) -> Iterator[tuple[slice, Tensor]]:
        """The features of all nodes held, in order, as views of the disk, with the range of their node ids."""
        if rows_at_once < 1:
            raise PartitionError(f"a scan needs at least one row at once, got {rows_at_once}")
        for part in self._held.values():
            for start in range(part.start, part.stop, rows_at_once):
                stop = min(start + rows_at_once, part.stop)
                rows = slice(start - part.start, stop - part.start)
                if isinstance(part.features, Column):
                    yield slice(start, stop), part.features.rows(rows.start, rows.stop)
                else:
                    yield slice(start, stop), sparse_slice(part.features, rows, self.num_features)

    def in_edges(self, part: int, start: int = 0, stop: int | None = None) -> tuple[Tensor, Tensor]:
        """Offsets [rows + 1] of a part's rows start .. stop - 1 and source node ids, ascending within a target.

        Both view the disk; sources of other rows must not be used.
        """
        held = self._part(part)
        return held.in_edges(start, held.stop - held.start if stop is None else stop)

    def in_edges_of(self, part: int, rows: Integers) -> tuple[NDArray[np.int64], Integers, NDArray[Any]]:
        """Where the sources of each of a part's rows begin, how many there are, and source node ids, on the disk."""
        return self._part(part).in_edges_of(rows)

    def part_numbers(self, node_ids: Integers) -> NDArray[np.uint16]:
        """The part of each node; a partition has fewer parts than such a number can tell."""
        return np.searchsorted(self._bounds[1:], node_ids, side="right").astype(np.uint16)

    def in_degrees(self, node_ids: Tensor) -> Tensor:
        """How many in-edges each node has, as they are stored; int64 [k]."""
        ids = self.checked(node_ids)
        degrees = np.empty(len(ids), dtype=np.int64)
        for part, positions, rows in self._groups(ids):
            degrees[positions] = part.in_edges_of(rows)[1]
        return torch.from_numpy(degrees)

    def in_neighbors(self, node_ids: Tensor) -> tuple[Tensor, Tensor]:
        """How many in-edges each node has, int64 [k], and the sources of all, a node's after those of the one before.

        As they are stored: an edge that a directed graph lists twice is there twice.
        """
        ids = self.checked(node_ids)
        found = [(positions, *part.in_edges_of(rows)) for part, positions, rows in self._groups(ids)]
        counts = np.empty(len(ids), dtype=np.int64)
        for positions, _, count, _ in found:
            counts[positions] = count
        ends = offsets(counts)
        neighbors = np.empty(int(ends[-1]), self.manifest.index_type)
        for positions, starts, count, sources in found:
            neighbors[joined(ends[positions], count)] = sources.take(joined(starts, count))
        return torch.from_numpy(counts), torch.from_numpy(neighbors)

    def in_edge_weights(self, part: int, start: int, stop: int) -> Tensor:
        """What stands beside the sources that `in_edges` gives for these rows, in a partition with weights."""
        return self._part(part).in_edge_weights(start, stop)

    def induced(
        self,
        node_ids: Tensor,
        sources: Tensor | None = None,
        *,
        loops: bool = False,
        weights: bool = False,
        at_once: int = EDGES_AT_ONCE,
    ) -> Adjacency:
        """The edges to node_ids[r], in row r, from distinct sources by their place; None: from the node ids themselves.

        Each edge is there once; with `loops`, every target among the sources has one to itself, and with `weights` all
        have those of the graph. Parts elsewhere may hold sources, but not targets. A thread works on so many `at_once`.
        """
        targets = self.checked(node_ids)
        order = np.argsort(targets)
        ascending = targets[order]
        places = targets if sources is None else self.checked(sources)
        edges = self._induction.edges(ascending, order, self._ranges(ascending), places, loops, at_once, weights)
        return replace(edges, columns=None) if sources is None else edges

    def with_in_edges(self, in_edges: Sequence[Adjacency]) -> "Store":
        """The same nodes with other edges, of the targets of each part held; the manifest's counts stay as they are."""
        parts = zip(self._held.items(), in_edges, strict=True)
        held = {
            number: replace(part, indptr=Column(edges.indptr), sources=Column(edges.sources), weights=None)
            for (number, part), edges in parts
        }
        return Store(self.directory, self.manifest, held)

    @cached_property
    def _originals(self) -> IdIndex:
        return IdIndex.open(self.directory, self.manifest)

    def _dense_rows(self, ids: NDArray[np.int64], out: Tensor, column: Callable[[MappedPart], Column]) -> Tensor:
        if len(self.parts) == 1:
            return torch.index_select(column(self._part(0)).at(ids), 0, torch.from_numpy(ids), out=out)
        if (ids[1:] < ids[:-1]).any():
            return dense_rows(ids, out, self._groups, column)
        for part, piece in self._ranges(ids):
            rows = ids[piece] - part.start
            torch.index_select(column(part).at(rows), 0, torch.from_numpy(rows), out=out[piece])
        return out

    def _part(self, number: int) -> MappedPart:
        """The one place that knows which parts are here."""
        if not 0 <= number < len(self.parts):
            raise PartitionError(f"{self.directory} has no part {number}: its parts are 0 to {len(self.parts) - 1}")
        if number not in self._held:
            held = ", ".join(map(str, self._held)) or "none"
            raise PartitionError(f"part {number} of {self.directory} is not held here (held: {held}): open it as well")
        return self._held[number]

    def _ranges(self, ascending: NDArray[np.int64]) -> list[tuple[MappedPart, slice]]:
        """Ascending node ids as one slice a part."""
        cuts = np.searchsorted(ascending, self._bounds).tolist()
        slices = [slice(start, stop) for start, stop in pairwise(cuts)]
        return [(self._part(number), piece) for number, piece in enumerate(slices) if piece.stop > piece.start]

    def _groups(self, ids: NDArray[np.int64]) -> list[Group]:
        """Node ids by part: their positions in the request, and their rows in the part."""
        order = np.argsort(ids)
        ascending = ids[order]
        return [Group(part, order[piece], ascending[piece] - part.start) for part, piece in self._ranges(ascending)]
