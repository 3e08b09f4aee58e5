"""Which nodes the edges of new nodes name: nodes of the graph, or new ones among themselves."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nfdist import log
from nfdist.errors import UnknownNodeError
from nfdist.store.columns import cast_like, decoded, is_list, is_text
from nfdist.store.store import Store
from nfdist.store.table_files import Rows, check_column

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Joined:
    """Row `targets[i]` of the new nodes hears node `sources[i]` of the graph, `new_targets[i]` row `new_sources[i]`."""

    targets: Numbers
    sources: Numbers
    new_targets: Numbers
    new_sources: Numbers

    @staticmethod
    def concatenate(*parts: "Joined") -> "Joined":
        names, nothing = [field.name for field in fields(Joined)], np.empty(0, np.int64)
        return Joined(*(np.concatenate([nothing, *(getattr(part, name) for part in parts)]) for name in names))


@dataclass(frozen=True)
class EdgeEnds:
    """Looks names up among the nodes of a graph and, with `together`, among the `ids` of new nodes."""

    ids: Any
    store: Store
    together: bool

    def listed(self, rows: Rows, column: str) -> Joined:
        """What a column of lists says of every row's neighbors."""
        lists = rows[column].combine_chunks()
        if not is_list(lists.type):
            raise UnknownNodeError(
                f"{rows.name}: {column} must be lists of ids, got {lists.type}: or give them as edges"
            )
        counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        names = pa.chunked_array([lists.flatten()])
        return self._joined(np.repeat(np.arange(len(counts)), counts), names, f"{rows.name}, column {column!r}")

    def given(self, edges: Rows) -> Joined:
        """What a table of edges says; each needs a new node at an end, in a directed graph at its target."""
        manifest = self.store.manifest
        ends = manifest.schema.source_column, manifest.schema.target_column
        for end in ends:
            check_column(edges.name, end, edges.table.column_names)
        sources, targets = (edges[end] for end in ends)
        from_new, to_new = (self._find(names, edges.name)[1] >= 0 for names in (sources, targets))
        for row in np.flatnonzero(~from_new & ~to_new)[:1].tolist():
            both = f"{sources[row].as_py()!r} and {targets[row].as_py()!r}"
            raise UnknownNodeError(f"{edges.place(row)} joins {both}, of which none is a new node: leave it out")
        inward = self._joined(*self._rows(targets, to_new, sources, edges), edges.name)
        outward = self._joined(*self._rows(sources, from_new, targets, edges), edges.name)
        if not manifest.directed:
            return Joined.concatenate(inward, outward)
        if len(outward.targets):
            log.notice(f"{len(outward.targets)} edges lead from new nodes to the graph, which hears none of them")
        return inward

    def _rows(self, new: Any, chosen: NDArray[np.bool_], others: Any, edges: Rows) -> tuple[Numbers, Any]:
        """The new nodes of some edges, and what they name at their other ends."""
        return self._find(new, edges.name)[1][chosen], others.filter(pa.array(chosen))

    def _joined(self, rows: Numbers, names: Any, where: str) -> Joined:
        known, new = self._find(names, where)
        of_graph = known >= 0
        for place in np.flatnonzero(~of_graph & ((new < 0) | (not self.together)))[:1].tolist():
            cure = "name nodes of the graph only" if new[place] < 0 else "give --together to join new nodes"
            text = f"{where}: no node is called {names[place].as_py()!r} in {self.store.directory}: {cure}"
            raise UnknownNodeError(text)
        return Joined(rows[of_graph], known[of_graph], rows[~of_graph], new[~of_graph])

    def _find(self, names: Any, where: str) -> tuple[Numbers, Numbers]:
        """The node id of every name, and its row among the new nodes, -1 for none."""
        names = decoded(names)
        if pa.types.is_null(names.type):
            names = names.cast(pa.string())
        if not (pa.types.is_integer(names.type) or is_text(names.type)):
            raise UnknownNodeError(f"{where}: neighbors are named by integers or text, as ids are, got {names.type}")
        kind = pa.int64() if self.store.manifest.id_type == "int64" else pa.large_string()
        spelled = cast_like(names, kind)
        there = spelled.is_valid().to_numpy()
        known = np.full(len(names), -1)
        known[there] = self.store.known_node_ids(spelled.drop_null().combine_chunks())
        new = pc.index_in(cast_like(names, self.ids.type), value_set=self.ids, skip_nulls=True)
        return known, pc.fill_null(new, -1).to_numpy().astype(np.int64)
