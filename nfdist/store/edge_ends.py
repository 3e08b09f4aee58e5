"""Which nodes the edges of new nodes name: nodes of the graph, or new ones among themselves."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nfdist import log
from nfdist.errors import ConfigError, UnknownNodeError
from nfdist.store.columns import cast_like, decoded, is_list, is_number, is_text, to_numbers
from nfdist.store.pairs import Numbers, Weights
from nfdist.store.schema import EDGE_WEIGHT
from nfdist.store.store import Store
from nfdist.store.table_files import Rows, told_columns


@dataclass(frozen=True)
class Joined:
    """Row `targets[i]` of the new nodes hears node `sources[i]` of the graph, `new_targets[i]` row `new_sources[i]`.

    `weights` and `new_weights` are what a table of edges says of these, NaN where it says nothing.
    """

    targets: Numbers
    sources: Numbers
    new_targets: Numbers
    new_sources: Numbers
    weights: Weights
    new_weights: Weights

    @staticmethod
    def concatenate(*parts: "Joined") -> "Joined":
        names = [field.name for field in fields(Joined)]
        nothing = [np.empty(0, np.float64 if name.endswith("weights") else np.int64) for name in names]
        lists = ([none, *(getattr(part, name) for part in parts)] for name, none in zip(names, nothing, strict=True))
        return Joined(*map(np.concatenate, lists))

    def both_ways(self) -> "Joined":
        """The same with every edge among new nodes in both directions."""
        targets, sources = self.new_targets, self.new_sources
        mirrored = replace(self, new_targets=sources, new_sources=targets)
        alone = {name: getattr(self, name)[:0] for name in ("targets", "sources", "weights")}
        return Joined.concatenate(self, replace(mirrored, **alone))


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
        rows_of_names, unsaid = np.repeat(np.arange(len(counts)), counts), np.full(len(names), np.nan)
        return self._joined(rows_of_names, names, unsaid, f"{rows.name}, column {column!r}")

    def given(self, edges: Rows) -> Joined:
        """What a table of edges says; each needs a new node at an end, in a directed graph at its target."""
        manifest = self.store.manifest
        ends = manifest.schema.source_column, manifest.schema.target_column
        check_ends(edges.name, edges.table.column_names, self.store)
        for end in ends:
            edges.check_filled(end, UnknownNodeError)
        sources, targets = (edges[end] for end in ends)
        from_new, to_new = (self._find(names, edges.name)[1] >= 0 for names in (sources, targets))
        for row in np.flatnonzero(~from_new & ~to_new)[:1].tolist():
            both = f"{sources[row].as_py()!r} and {targets[row].as_py()!r}"
            raise UnknownNodeError(f"{edges.place(row)} joins {both}, of which none is a new node: leave it out")
        weights = self._weights(edges, ends)
        inward = self._joined(*self._rows(targets, to_new, sources, weights, edges), edges.name)
        outward = self._joined(*self._rows(sources, from_new, targets, weights, edges), edges.name)
        if not manifest.directed:
            return Joined.concatenate(inward, outward)
        if len(outward.targets):
            log.notice(f"{len(outward.targets)} edges lead from new nodes to the graph, which hears none of them")
        return inward

    def _rows(
        self, new: Any, chosen: NDArray[np.bool_], others: Any, weights: Weights, edges: Rows
    ) -> tuple[Numbers, Any, Weights]:
        """The new nodes of some edges, what they name at their other ends, and weights."""
        return self._find(new, edges.name)[1][chosen], others.filter(pa.array(chosen)), weights[chosen]

    def _weights(self, edges: Rows, ends: tuple[str, str]) -> Weights:
        """What every edge weighs, NaN where the graph has no weights or the table does not say any."""
        if not self.store.manifest.weighted or EDGE_WEIGHT in ends or EDGE_WEIGHT not in edges.table.column_names:
            return np.full(len(edges), np.nan)
        column = decoded(edges[EDGE_WEIGHT])
        if not is_number(column.type):
            raise ConfigError(f"{edges.name}: {EDGE_WEIGHT} must be numbers, got {column.type}: or leave it out")
        weights = np.asarray(to_numbers(column), np.float64)
        for row in np.flatnonzero(~((weights >= 0) & (weights <= np.finfo(np.float32).max)))[:1].tolist():
            cure = "give a finite number from 0 on, or leave the edge out"
            raise ConfigError(f"{edges.place(row)} has the {EDGE_WEIGHT} {weights[row]}: {cure}")
        return weights

    def _joined(self, rows: Numbers, names: Any, weights: Weights, where: str) -> Joined:
        known, new = self._find(names, where)
        of_graph = known >= 0
        for place in np.flatnonzero(~of_graph & ((new < 0) | (not self.together)))[:1].tolist():
            cure = "name nodes of the graph only" if new[place] < 0 else "give --together to join new nodes"
            text = f"{where}: no node is called {names[place].as_py()!r} in {self.store.directory}: {cure}"
            raise UnknownNodeError(text)
        pairs = rows[of_graph], known[of_graph], rows[~of_graph], new[~of_graph]
        return Joined(*pairs, weights[of_graph], weights[~of_graph])

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


def check_ends(where: str, there: Sequence[str], store: Store) -> None:
    """Refuse a table of edges without the columns that name the ends of the graph's edges."""
    schema = store.manifest.schema
    for end in (schema.source_column, schema.target_column):
        if end not in there:
            have = f"which the edges of {store.directory} have"
            raise ConfigError(f"{where} has no column {end!r}, {have}: rename one, {told_columns(there)}")
