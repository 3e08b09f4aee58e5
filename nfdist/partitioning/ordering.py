"""The in-edges of every node, ordered: all edges pass in batches through one sort of packed numbers.

The key of an edge is its target, then its source, in one number of 64 bits.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.partitioning.duckdb_door import Columns
from nfdist.partitioning.edge_exchange import EdgeExchange, Owners
from nfdist.partitioning.edge_weights import EdgeWeights
from nfdist.partitioning.workspace import Workspace
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.ranges import offsets
from nfdist.store.source_graph import SourceGraph

MOST_NODES = 1 << 31  # whose numbers fit twice into a key


def order_edges(
    graph: SourceGraph, directed: bool, workspace: Workspace | None = None, owners: Owners | None = None
) -> Adjacency:
    """The in-edges of every row: as given if directed, otherwise in both directions and each once; with any weights.

    Of a world of several ranks each gets those of the rows that are its own by `owners`, the others have none. Then
    every rank must call this.
    """
    workspace = workspace or Workspace.unlimited()
    num_nodes, listed = graph.num_nodes, len(graph.sources)
    if num_nodes > MOST_NODES:
        raise PartitionError(f"{graph.name} has {num_nodes:,} nodes: one process orders at most {MOST_NODES:,}")
    bits = max(num_nodes - 1, 1).bit_length()
    world, keys_of = workspace.world, partial(_keys, graph, bits, directed)
    most, given_keys = listed if directed else 2 * listed, keys_of(workspace.rows_at_once)
    if world.size > 1:
        assert owners is not None
        to_owners = EdgeExchange(world, bits, owners, graph.weights is not None)
        rows = max(1, workspace.rows_at_once // world.size)  # all of them may be of one rank
        most, given_keys = to_owners.count(keys_of(rows)), to_owners.exchanged(keys_of(rows))
    sources: NDArray[Any] = workspace.scratch.array(most, np.int32)
    weights = None if graph.weights is None else EdgeWeights(graph, directed, workspace.scratch.array(most, np.float32))
    degrees = np.zeros(num_nodes, np.int64)
    filled = 0
    for columns in _in_order(given_keys, weights is not None, workspace):
        keys = columns[0]
        fresh = np.ones(len(keys), dtype=bool)
        np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
        kept = keys if directed else keys[fresh]
        targets, found = kept >> bits, kept & ((1 << bits) - 1)
        place = slice(filled, filled + len(kept))
        sources[place] = found
        first, last = int(targets[0]), int(targets[-1])
        degrees[first : last + 1] += np.bincount(targets - first)
        if weights is not None:
            weights.add(place, targets, found, fresh, columns[1])
        filled += len(kept)
        workspace.told(filled, most)
    wide = max(filled, num_nodes) >= 1 << 31
    indptr = offsets(degrees, np.int64 if wide else np.int32)
    given = None if weights is None else torch.from_numpy(weights.checked(world)[:filled])
    return Adjacency(torch.from_numpy(indptr), torch.from_numpy(sources[:filled]), weights=given)


def _keys(graph: SourceGraph, bits: int, directed: bool, at_once: int) -> Iterator[Columns]:
    """The key of every edge, without `directed` in both directions; of weighted edges also their place and weight."""
    rows = at_once if directed else max(1, at_once // 2)
    for start in range(0, len(graph.sources), rows):
        sources, targets = (ends[start : start + rows].astype(np.int64) for ends in (graph.sources, graph.targets))
        keys = [targets << bits | sources]
        if not directed:
            apart = sources != targets
            keys.append(sources[apart] << bits | targets[apart])
        if graph.weights is None:
            yield (np.concatenate(keys),)
            continue
        places = np.arange(graph.first_edge + start, graph.first_edge + start + len(sources))
        weights = np.asarray(graph.weights[start : start + rows], np.float64)
        if directed:
            yield keys[0], places, weights
        else:
            yield np.concatenate(keys), np.append(places, places[apart]), np.append(weights, weights[apart])


def _in_order(batches: Iterable[Columns], weighted: bool, workspace: Workspace) -> Iterator[Columns]:
    """Keys ascending and any weights, those of one edge in the order they are listed in and in one batch."""
    names, by = (("key", "place", "weight"), 2) if weighted else (("key",), 1)
    carried: Columns = ()
    for columns in workspace.engine.ascending(batches, names, by):
        batch: Columns = (columns[0], columns[2]) if weighted else columns
        if carried:
            batch = tuple(map(np.concatenate, zip(carried, batch, strict=True)))
        last = int(np.searchsorted(batch[0], batch[0][-1]))  # this edge may go on in the next batch
        if last:
            yield tuple(column[:last] for column in batch)
        carried = tuple(column[last:] for column in batch)
    if carried and len(carried[0]):
        yield carried
