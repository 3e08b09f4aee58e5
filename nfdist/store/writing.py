"""Write a graph as a partition: nodes renumbered so that a part owns one range, part by part, whole or not at all."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse
import torch
from numpy.typing import NDArray

from nfdist.collectives import gather_text, total
from nfdist.errors import PartitionError
from nfdist.scratch import Scratch
from nfdist.store.arrow_files import integer_type, rows_of, write_columns
from nfdist.store.columns import repeated_ids, sorting, take_ids
from nfdist.store.gate import StoredFile, WholeFile, recorded
from nfdist.store.given_rows import GivenRows, as_slice
from nfdist.store.manifest import FORMAT_VERSION, IDS_FILE, WEIGHTS, Manifest, Part, part_directory, part_file
from nfdist.store.ranges import Integers, joined, offsets, pieces
from nfdist.store.row_shares import RowShares
from nfdist.store.schema import Schema
from nfdist.store.source_graph import SPLIT_NAMES, TRAIN, SourceGraph
from nfdist.store.written_together import written_together
from nfdist.world import World

EDGES_AT_ONCE = 1 << 22
ALONE = World()


@dataclass(frozen=True)
class Renumbering:
    """Part p owns the node ids bounds[p] .. bounds[p + 1] - 1; `rows` are the source's rows in that order."""

    rows: Integers
    node_ids: Integers
    bounds: NDArray[np.int64]

    @staticmethod
    def by_part(assignment: Integers, num_parts: int) -> "Renumbering":
        """Rows keep their order within a part."""
        num_nodes = len(assignment)
        narrow = np.uint16 if num_parts < 2**16 else np.int64  # numpy sorts 16-bit numbers in linear time
        index_type = integer_type(num_nodes)
        rows = np.argsort(assignment.astype(narrow, copy=False), kind="stable").astype(index_type, copy=False)
        node_ids = np.empty(num_nodes, dtype=index_type)
        node_ids[rows] = np.arange(num_nodes, dtype=node_ids.dtype)
        bounds = offsets(np.bincount(assignment, minlength=num_parts))
        return Renumbering(rows, node_ids, bounds.astype(np.int64, copy=False))

    def rows_of_part(self, part: int) -> Integers:
        return self.rows[self.bounds[part] : self.bounds[part + 1]]

    def rows_of_parts(self, part: int, stop: int) -> Integers:
        """Those of a part before `stop`, and none of others."""
        return self.rows_of_part(part) if part < stop else self.rows[:0]


def write_partition(
    directory: Path | str,
    graph: SourceGraph,
    indptr: Integers,
    sources: Integers,
    assignment: Integers,
    num_parts: int,
    recipe: dict[str, Any],
    directed: bool,
    progress: Callable[[int], None] | None = None,
    edges_at_once: int = EDGES_AT_ONCE,
    weights: NDArray[np.float32] | None = None,
    scratch: Scratch | None = None,
    world: World = ALONE,
) -> Manifest:
    """Write the graph with in-edges sources[indptr[t] : indptr[t + 1]] of row t; the directory must not exist.

    `weights` stand beside the sources; those of an edge that is there twice must be the same.
    `progress` is called after each part with the number of its nodes. Columns of one part at a time are in `scratch`.

    Of a world of several ranks each writes the parts that are its own by `part_shares`, and has the in-edges of their
    rows alone; every rank must call this. What all parts need is on every disk that has some.
    """
    scratch = scratch or Scratch()
    _check(graph, indptr, sources, assignment, num_parts)
    assignment = assignment.astype(np.int64, copy=False)
    original_ids = _arrow_ids(graph.original_ids)
    renumbering = Renumbering.by_part(assignment, num_parts)
    part_edges = np.bincount(assignment, weights=np.diff(indptr), minlength=num_parts)
    index_type = integer_type(max(graph.num_nodes, int(total(world, torch.from_numpy(part_edges), "edges").max())))
    shares = part_shares(world, num_parts)
    numbers = range(num_parts)[shares.own]
    own_parts: list[Part] = []
    files: dict[str, StoredFile | WholeFile] = {}
    needed_bytes = _size_bytes(graph, len(sources), original_ids, index_type, weights is not None)
    folders = [part_directory(number) for number in numbers]
    rows_given = GivenRows(graph, scratch, world)
    with written_together(world, Path(directory), needed_bytes, "partition", PartitionError, folders) as (aside, leads):

        def store(name: str, columns: dict[str, Any]) -> None:
            write_columns(aside / name, columns)
            files[name] = recorded(aside / name)

        if leads:
            store(IDS_FILE, _sorted_ids(original_ids, renumbering.node_ids.astype(index_type, copy=False), scratch))
        for turn in range(int(np.diff(shares.bounds).max())):
            everyones = [renumbering.rows_of_parts(start + turn, stop) for start, stop in pairwise(shares.bounds)]
            rows = everyones[world.rank]
            given = rows_given.take(everyones)
            if turn >= len(numbers):
                continue
            number = numbers[turn]
            (aside / part_directory(number)).mkdir()
            for column, columns in _node_files(graph, original_ids, rows, given, scratch):
                store(part_file(number, column), columns)
            del given, columns
            edges = _in_edges(indptr, sources, weights, rows, renumbering, index_type, edges_at_once, scratch)
            for name, values in zip(("indptr", "sources", WEIGHTS), edges, strict=True):
                if values is not None:
                    store(part_file(number, name), {name: pa.array(values)})
            own_parts.append(_part(graph, renumbering, number, edges[1]))
            if progress:
                progress(len(rows))
        parts, files = _of_all_ranks(world, own_parts, files)
        manifest = _manifest(graph, original_ids, index_type, parts, files, recipe, directed)
        if leads:
            manifest.write(aside)
    return manifest


def part_shares(world: World, num_parts: int) -> RowShares:
    """Which parts every rank writes: consecutive ones, so that the ranks of a host have those of their host."""
    return RowShares.equal(world, num_parts)


def _of_all_ranks(
    world: World, parts: list[Part], files: dict[str, StoredFile | WholeFile]
) -> tuple[list[Part], dict[str, StoredFile | WholeFile]]:
    """The parts and the files that the ranks have written, in the order of parts."""
    if world.size == 1:
        return parts, files
    own = json.dumps([[asdict(part) for part in parts], {name: asdict(file) for name, file in files.items()}])
    everyones = [json.loads(text) for text in gather_text(world, own, "manifest")]
    found = {name: StoredFile(**file) for _, theirs in reversed(everyones) for name, file in theirs.items()}
    names = dict.fromkeys(name for _, theirs in everyones for name in theirs)
    return [Part(**part) for theirs, _ in everyones for part in theirs], {name: found[name] for name in names}


def _node_files(
    graph: SourceGraph, original_ids: Any, rows: Integers, given: tuple[NDArray[Any], ...], scratch: Scratch
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The names and columns of a part's node files, features first for their alignment."""
    chosen = as_slice(rows)
    labels = graph.labels[chosen]
    table = {
        "original_id": take_ids(original_ids, rows, scratch),
        "label": pa.array(labels.astype(np.int64)) if labels.ndim == 1 else rows_of(labels.astype(np.int8)),
        "split": pa.array(graph.split[chosen].astype(np.int8, copy=False)),
    }
    if not scipy.sparse.issparse(graph.features):
        yield "nodes", {"features": rows_of(given[0]), **table}
        return
    yield "nodes", table
    for name, values in zip(("indptr", "indices", "values"), given, strict=True):
        yield f"features-{name}", {name: pa.array(values)}


def _in_edges(
    indptr: Integers,
    sources: Integers,
    weights: NDArray[np.float32] | None,
    rows: Integers,
    renumbering: Renumbering,
    index_type: Any,
    edges_at_once: int,
    scratch: Scratch,
) -> tuple[Integers, Integers, NDArray[np.float32] | None]:
    """The in-edges of a part's rows, sources as node ids, ascending within a target, and what these weigh."""
    starts = indptr[rows].astype(np.int64, copy=False)
    counts = indptr[rows + 1] - starts
    part_indptr = offsets(counts, index_type)
    part_sources = scratch.array(int(part_indptr[-1]), index_type)
    part_weights = None if weights is None else scratch.array(len(part_sources), np.float32)
    source_bits = len(renumbering.rows).bit_length()
    for piece in pieces(counts, edges_at_once):
        positions, place = joined(starts[piece], counts[piece]), slice(*part_indptr[[piece.start, piece.stop]])
        keys = renumbering.node_ids[sources[positions]].astype(np.int64, copy=False)
        keys |= np.repeat(np.arange(piece.stop - piece.start, dtype=np.int64) << source_bits, counts[piece])
        if weights is not None and part_weights is not None:
            order = np.argsort(keys, kind="stable")
            keys, part_weights[place] = keys[order], weights[positions[order]]
        elif not (keys[1:] >= keys[:-1]).all():
            keys.sort()
        keys &= (1 << source_bits) - 1
        part_sources[place] = keys
    return part_indptr, part_sources, part_weights


def _part(graph: SourceGraph, renumbering: Renumbering, number: int, part_sources: Integers) -> Part:
    start, stop = int(renumbering.bounds[number]), int(renumbering.bounds[number + 1])
    in_halo = np.zeros(graph.num_nodes, dtype=bool)
    cut_edges = 0
    for first in range(0, len(part_sources), EDGES_AT_ONCE):
        some = part_sources[first : first + EDGES_AT_ONCE]
        foreign = some[(some < start) | (some >= stop)]
        in_halo[foreign] = True
        cut_edges += len(foreign)
    return Part(
        start=start,
        stop=stop,
        edges=len(part_sources),
        cut_edges=cut_edges,
        halo_nodes=int(np.count_nonzero(in_halo)),
        train_nodes=int(np.count_nonzero(graph.split[renumbering.rows_of_part(number)] == TRAIN)),
    )


def _manifest(
    graph: SourceGraph,
    original_ids: Any,
    index_type: Any,
    parts: list[Part],
    files: dict[str, StoredFile | WholeFile],
    recipe: dict[str, Any],
    directed: bool,
) -> Manifest:
    split_counts = np.bincount(graph.split, minlength=len(SPLIT_NAMES))
    return Manifest(
        format_version=FORMAT_VERSION,
        name=graph.name,
        task=graph.task,
        num_classes=int(graph.num_classes),
        num_nodes=graph.num_nodes,
        num_edges=sum(part.edges for part in parts),
        num_features=int(graph.features.shape[1]),
        feature_kind="sparse" if scipy.sparse.issparse(graph.features) else "dense",
        feature_dtype=str(graph.features.dtype),
        id_type="int64" if pa.types.is_integer(original_ids.type) else "string",
        index_type=np.dtype(index_type).name,
        label_shape=tuple(int(size) for size in graph.labels.shape[1:]),
        directed=directed,
        split_counts={name: int(count) for name, count in zip(SPLIT_NAMES, split_counts, strict=True)},
        edge_cut=sum(part.cut_edges for part in parts),
        parts=tuple(parts),
        recipe=recipe,
        schema=graph.schema or Schema.of_matrix(int(graph.features.shape[1]), str(graph.features.dtype)),
        files=files,
    )


def _arrow_ids(original_ids: Any) -> Any:
    """The user's ids as an Arrow array of int64 or strings."""
    if isinstance(original_ids, pa.Array):
        return original_ids
    if original_ids.dtype.kind in "iu":
        if original_ids.dtype == np.uint64 and len(original_ids) and original_ids.max() > np.iinfo(np.int64).max:
            raise PartitionError(f"original id {original_ids.max()} does not fit 64 bits with a sign: use strings")
        return pa.array(original_ids.astype(np.int64, copy=False))
    try:
        converted = pa.array(original_ids.astype(object, copy=False), type=pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeError) as error:
        raise PartitionError(f"original ids must be all integers or all strings: {error}") from None
    if converted.null_count:
        raise PartitionError(f"{converted.null_count} nodes have no original id: every node needs one")
    return converted


def _sorted_ids(original_ids: Any, node_ids: Integers, scratch: Scratch) -> dict[str, Any]:
    """Original ids ascending, strings by their bytes, each with its node id; an id used twice is refused."""
    order = sorting(original_ids)
    for repeated in repeated_ids(original_ids, order):
        raise PartitionError(f"original id {repeated.as_py()!r} belongs to two nodes: ids must be unique")
    if order is not None:
        original_ids, node_ids = take_ids(original_ids, order, scratch), node_ids[order]
    return {"original_id": original_ids, "node_id": pa.array(node_ids)}


def _size_bytes(graph: SourceGraph, num_edges: int, original_ids: Any, index_type: Any, weighted: bool) -> int:
    """The bytes of the columns: the files add a little."""
    index_bytes = np.dtype(index_type).itemsize
    if scipy.sparse.issparse(graph.features):
        entry_bytes = (
            graph.features.dtype.itemsize
            + np.dtype(integer_type(max(graph.features.nnz, graph.features.shape[1]))).itemsize
        )
        feature_bytes = graph.features.nnz * entry_bytes
    else:
        feature_bytes = graph.features.nbytes
    label_bytes = 8 if graph.labels.ndim == 1 else graph.labels.shape[1]
    node_bytes = graph.num_nodes * (1 + label_bytes + 2 * index_bytes)
    return int(feature_bytes + 2 * original_ids.nbytes + node_bytes + num_edges * (index_bytes + 4 * weighted))


def _check(graph: SourceGraph, indptr: Integers, sources: Integers, assignment: Integers, num_parts: int) -> None:
    num_nodes = graph.num_nodes
    if num_nodes == 0:
        raise PartitionError(f"{graph.name} has no nodes: there is nothing to partition")
    _check_columns(graph)
    if len(indptr) != num_nodes + 1 or int(indptr[-1]) != len(sources):
        raise PartitionError(f"in-edges of {len(indptr) - 1} nodes were given, the graph has {num_nodes}")
    if len(sources) and (sources.min() < 0 or sources.max() >= num_nodes):
        raise PartitionError(f"an edge has a source outside the {num_nodes} nodes of the graph")
    if assignment.shape != (num_nodes,) or num_parts < 1 or assignment.min() < 0 or assignment.max() >= num_parts:
        raise PartitionError(f"the assignment must give each of {num_nodes} nodes a part from 0 to {num_parts - 1}")


def _check_columns(graph: SourceGraph) -> None:
    features, labels, split = graph.features, graph.labels, graph.split
    if features.ndim != 2 or features.shape[1] == 0:
        raise PartitionError(f"features have the shape {list(features.shape)}: every node needs at least one")
    if features.dtype not in (np.float32, np.float16):
        raise PartitionError(f"features are {features.dtype}: give float32 or float16")
    if labels.ndim not in (1, 2) or 0 in labels.shape[1:]:
        raise PartitionError(f"labels have the shape {list(labels.shape)}: give [nodes] or [nodes, questions]")
    num_own = features.shape[0] if graph.shares is None else graph.num_nodes  # and of others no more than their share
    for name, num_rows in (("features", num_own), ("labels", labels.shape[0]), ("split", split.shape[0])):
        if num_rows != graph.num_nodes:
            raise PartitionError(f"{name} have {num_rows} rows, the graph has {graph.num_nodes} nodes")
    if labels.dtype.kind not in "iub":
        raise PartitionError(f"labels are {labels.dtype}: give integers, with -1 for none")
    if labels.ndim == 2 and (labels.min() < -1 or labels.max() > 1):
        raise PartitionError("a multi-label answer is not 0, 1 or -1 for none: give one column a question")
    if split.min() < 0 or split.max() >= len(SPLIT_NAMES):
        raise PartitionError(f"a split lies outside 0 .. {len(SPLIT_NAMES) - 1}: use {', '.join(SPLIT_NAMES)}")
