"""From what a table of edges calls its ends to rows of nodes, batch by batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nfdist.collectives import alike
from nfdist.errors import PartitionError
from nfdist.partitioning.sources.first_wrong import first_wrong
from nfdist.partitioning.sources.validation import check_known
from nfdist.partitioning.workspace import Workspace
from nfdist.store.arrow_files import integer_type
from nfdist.store.columns import as_ids, cast_like, decoded, is_text
from nfdist.store.table_files import Rows

_MOST_HASHED = 1 << 20  # edges or nodes that are looked up without a join
Found = tuple[NDArray[Any], NDArray[Any]]


def to_rows(
    edges: Rows, ends: Sequence[str], ids: Any, id_column: str, others: Sequence[str], workspace: Workspace
) -> Found:
    """The rows of the nodes that both columns of edges name; `others` are further columns of the nodes."""
    known, world = as_ids(ids), workspace.world
    for end in ends:
        alike(world, partial(edges.check_filled, end))
        kind = edges[end].type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (is_text(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise PartitionError(f"{edges.name}: ends of edges must be integers or text, as ids are, got {kind}")
    columns = _Ends(edges, tuple(ends), known, workspace)
    rows = tuple(workspace.scratch.array(len(edges), integer_type(len(known))) for _ in ends)
    done = 0
    for places, found in columns.look_up():
        for row, column in zip(rows, found, strict=True):
            row[places] = column
        done += len(found[0])
        workspace.told(done, len(edges))
    unknown, count = "", 0
    for end, row in zip(ends, rows, strict=True):
        missing, first = _missing(row)
        shown = repr(decoded(edges[end].slice(first, 1))[0].as_py()) if missing else ""
        missing, shown = first_wrong(world, missing, shown)
        count, unknown = count + missing, unknown or shown
    check_known(edges.name, unknown, count, id_column, others)
    return rows[0], rows[1]


def _missing(rows: NDArray[Any]) -> tuple[int, int]:
    """How many rows are -1, and the place of the first one."""
    count, first = 0, -1
    for start in range(0, len(rows), _MOST_HASHED):
        places = np.flatnonzero(rows[start : start + _MOST_HASHED] < 0)
        if len(places) and first < 0:
            first = start + int(places[0])
        count += len(places)
    return count, first


@dataclass
class _Ends:
    """Both ends of edges, and the ids among which they are looked up."""

    edges: Rows
    ends: tuple[str, ...]
    known: Any
    workspace: Workspace

    def look_up(self) -> Iterator[tuple[Any, Found]]:
        """Places of edges and the rows of their ends, -1 for no node."""
        if pa.types.is_integer(self.known.type) and _are_row_numbers(self.known):
            return self._numbered()
        if max(len(self.edges), len(self.known)) <= _MOST_HASHED:
            return self._hashed()
        return self._joined()

    def _batches(self) -> Iterator[tuple[slice, list[Any]]]:
        """Places and ends in the type of the ids, null where there is no such id."""
        size = self.workspace.rows_at_once
        for start in range(0, len(self.edges), size):
            some = [cast_like(decoded(self.edges[end].slice(start, size)), self.known.type) for end in self.ends]
            yield slice(start, start + len(some[0])), some

    def _numbered(self) -> Iterator[tuple[Any, Found]]:
        """Ids that are the numbers of the rows."""
        for places, ends in self._batches():
            numbers = [pc.fill_null(end.cast(pa.int64(), safe=False), -1).to_numpy() for end in ends]
            yield places, _pair(np.where((n >= 0) & (n < len(self.known)), n, -1) for n in numbers)

    def _hashed(self) -> Iterator[tuple[Any, Found]]:
        for places, ends in self._batches():
            found = (pc.index_in(end, value_set=self.known, skip_nulls=True) for end in ends)
            yield places, _pair(pc.fill_null(rows, -1).to_numpy() for rows in found)

    def _joined(self) -> Iterator[tuple[Any, Found]]:
        """Batches in any order, from a join that may spill to the disk."""
        kind = self.known.type
        schema = pa.schema([("place", pa.int64()), ("source", kind), ("target", kind)])
        text = (
            "SELECT place, coalesce(s.node, -1) AS source, coalesce(t.node, -1) AS target FROM edges "
            "LEFT JOIN sources AS s ON edges.source = s.id LEFT JOIN targets AS t ON edges.target = t.id"
        )
        tables = {"edges": pa.RecordBatchReader.from_batches(schema, self._placed(schema))}
        nodes = pa.schema([("id", kind), ("node", pa.int64())])
        for name in ("sources", "targets"):
            tables[name] = pa.RecordBatchReader.from_batches(nodes, self._nodes(nodes))
        for batch in self.workspace.engine.query(text, **tables):
            places, sources, targets = (column.to_numpy() for column in batch.columns)
            yield places, (sources, targets)

    def _placed(self, schema: pa.Schema) -> Iterator[Any]:
        for places, ends in self._batches():
            columns = [pa.array(np.arange(places.start, places.stop)), *(end.combine_chunks() for end in ends)]
            yield from pa.table(columns, schema=schema).to_batches()

    def _nodes(self, schema: pa.Schema) -> Iterator[Any]:
        size = self.workspace.rows_at_once
        for start in range(0, len(self.known), size):
            ids = self.known.slice(start, size)
            yield pa.record_batch([ids, pa.array(np.arange(start, start + len(ids)))], schema=schema)


def _pair(columns: Iterator[NDArray[Any]]) -> Found:
    sources, targets = columns
    return sources, targets


def _are_row_numbers(ids: Any) -> bool:
    return all(
        np.array_equal(ids.slice(start, _MOST_HASHED).to_numpy(), np.arange(start, min(start + _MOST_HASHED, len(ids))))
        for start in range(0, len(ids), _MOST_HASHED)
    )
