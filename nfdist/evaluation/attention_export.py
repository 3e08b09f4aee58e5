"""Exports of the attention: the weights of input edges, and the strongest of all pairs for a few chosen nodes.

Weights are free of noise and averaged over the heads. Both classes listen to an evaluation; neither ever holds anything
of size [nodes, nodes] or [edges, features].
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from nfdist.attention.attend import attend_to, key_logs_met, pair_log_weights
from nfdist.collectives import gather, together, total
from nfdist.evaluation.full import LayerInput
from nfdist.evaluation.gathered_writer import Columns, write_gathered_table, write_table
from nfdist.evaluation.outputs import as_lists, original_ids
from nfdist.evaluation.placement import CPU
from nfdist.graph.hop import EdgeSegment
from nfdist.graph.spill import Spill
from nfdist.store.store import Store
from nfdist.world import World

EDGES_FILE = "edges.parquet"
NEIGHBORS_FILE = "neighbors.parquet"
EDGES_AT_ONCE = 1 << 15
PAIRS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Edges:
    """A bounded number of edges: to consecutive rows, from sources[indptr[i] : indptr[i + 1]] to the i-th of these."""

    start: int
    rows: slice
    indptr: Tensor
    sources: Tensor

    @property
    def place(self) -> slice:
        """Where they are among all edges of the rank."""
        return slice(self.start, self.start + len(self.sources))


class EdgeWeights:
    """Listens to an evaluation and keeps the weights [edges, layers] of this rank's in-edges, in a file."""

    def __init__(
        self,
        store: Store,
        world: World,
        nodes: range,
        num_layers: int,
        scratch: Path | None = None,
        edges_at_once: int = EDGES_AT_ONCE,
    ) -> None:
        self._edges_at_once = edges_at_once
        self._store, self._world, self._nodes, self._num_layers = store, world, nodes, num_layers
        self._spill = Spill(0, scratch)
        self._segments: list[EdgeSegment] = []
        self._weights = self._node_ids = torch.empty(0)

    def __call__(self, seen: LayerInput) -> None:
        """Weigh the edges for one layer. Every rank must call this."""
        if seen.index == 1:
            self._begin(seen)
        query_map = seen.layer.query_map(seen.kernel)
        for edges in self._pieces():
            queries = query_map(seen.hidden(edges.rows))
            distinct, places = edges.sources.unique(return_inverse=True)
            keys = key_logs_met(seen.layer.keys(seen.hidden(distinct), seen.kernel), seen.summary, seen.kernel)
            normalizers = attend_to(queries, seen.summary, seen.kernel).log_normalizers
            targets = torch.arange(len(queries)).repeat_interleave(edges.indptr.diff()).to(queries.device)
            log_weights = pair_log_weights(queries, keys, normalizers, targets, places.to(queries.device))
            self._weights[edges.place, seen.index - 1] = log_weights.exp_().mean(1).float()

    def write(self, path: Path) -> None:
        """Write the edges of all ranks, in the order of their targets' node ids. Every rank must call this."""
        mine = list(self._pieces_of_segments())
        counts = gather(self._world, torch.tensor([[self._nodes.start, len(mine)]]), "outputs")
        order = sorted((int(count[0, 0]), rank, int(count[0, 1])) for rank, count in enumerate(counts))
        pieces = self._pieces()
        owners = (rank for _, rank, count in order for _ in range(count))
        turns = ((rank, next(pieces) if rank == self._world.rank else None) for rank in owners)
        write_gathered_table(path, self._world, turns, self._columns)

    def _begin(self, seen: LayerInput) -> None:
        assert seen.shard.hops, "without relations no edges are known"
        self._segments = [segment.on(CPU) for segment in seen.shard.hops[0].segments]
        num_edges = sum(segment.num_edges for segment in self._segments)
        self._weights, self._node_ids = together(
            self._world,
            lambda: (
                self._spill.tensor((num_edges, self._num_layers), torch.float32),
                self._spill.tensor((seen.shard.num_sources,), torch.int64),
            ),
        )
        self._node_ids[: len(self._nodes)] = torch.arange(self._nodes.start, self._nodes.stop)
        seen.shard.fetch(self._node_ids)

    def _pieces_of_segments(self) -> Iterator[tuple[EdgeSegment, int, int]]:
        for segment in self._segments:
            first, last = int(segment.indptr[0]), int(segment.indptr[-1])
            for start in range(first, last, self._edges_at_once):
                yield segment, start, min(start + self._edges_at_once, last)

    def _pieces(self) -> Iterator[Edges]:
        done = 0
        for segment, start, stop in self._pieces_of_segments():
            indptr = segment.indptr.numpy()
            top, end = int(np.searchsorted(indptr, start, "right")) - 1, int(np.searchsorted(indptr, stop))
            offsets = segment.indptr[top : end + 1].long().clamp(start, stop) - start
            rows = slice(segment.first + top, segment.first + end)
            yield Edges(done, rows, offsets, segment.sources[start:stop].long())
            done += stop - start

    def _columns(self, edges: Edges | None) -> Columns:
        assert edges is not None
        targets = torch.arange(edges.rows.start, edges.rows.stop).repeat_interleave(edges.indptr.diff())
        return {
            "source": original_ids(self._store, self._node_ids[edges.sources]),
            "target": original_ids(self._store, targets + self._nodes.start),
            "weights": as_lists(self._weights[edges.place]),
        }


class TopNeighbors:
    """Listens to an evaluation and keeps the `count` nodes that each chosen node (by node ids [q]) attends to most."""

    def __init__(
        self, world: World, nodes: range, chosen: Tensor, count: int, pairs_at_once: int = PAIRS_AT_ONCE
    ) -> None:
        self._pairs_at_once = pairs_at_once
        self._world, self._nodes, self._chosen, self._count = world, nodes, chosen, count
        self._found: list[tuple[Tensor, Tensor]] = []

    def __call__(self, seen: LayerInput) -> None:
        """Search all keys of one layer. Every rank must call this."""
        queries = self._queries(seen)
        normalizers = attend_to(queries, seen.summary, seen.kernel).log_normalizers
        device = queries.device
        best = queries.new_empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64, device=device)
        at_once = max(1, self._pairs_at_once // max(1, len(queries)))
        for start in range(0, len(self._nodes), at_once):
            rows = slice(start, min(start + at_once, len(self._nodes)))
            keys = key_logs_met(seen.layer.keys(seen.hidden(rows), seen.kernel), seen.summary, seen.kernel)
            every_query = torch.arange(len(queries), device=device).repeat_interleave(len(keys))
            every_key = torch.arange(len(keys), device=device).repeat(len(queries))
            log_weights = pair_log_weights(queries, keys, normalizers, every_query, every_key)
            weights = log_weights.exp_().mean(1).view(len(queries), len(keys))
            node_ids = torch.arange(len(keys), device=device).expand_as(weights) + (self._nodes.start + start)
            best = self._strongest([best[0], weights], [best[1], node_ids])
        ranks = [gather(self._world, part.t().contiguous(), "outputs") for part in best]
        weights, node_ids = self._strongest(*([part.t() for part in parts] for parts in ranks))
        self._found.append((weights.cpu(), node_ids.cpu()))

    def write(self, path: Path, store: Store) -> None:
        """Write a row for every chosen node and layer, on rank 0. Every rank must call this."""

        def write() -> None:
            if self._world.rank == 0:
                write_table(path, self._columns(store))

        together(self._world, write)

    def _queries(self, seen: LayerInput) -> Tensor:
        """Features [q, h, m] of the chosen nodes of all ranks."""
        query_map = seen.layer.query_map(seen.kernel)
        mine = (self._chosen >= self._nodes.start) & (self._chosen < self._nodes.stop)
        own = query_map(seen.hidden(self._chosen[mine] - self._nodes.start))
        queries = own.new_zeros(len(self._chosen), *own.shape[1:])
        queries[mine.to(own.device)] = own
        return total(self._world, queries, "chosen nodes")

    def _strongest(self, weights: list[Tensor], node_ids: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The strongest first; of equal ones, the first given."""
        ordered, places = torch.cat(weights, 1).sort(dim=1, descending=True, stable=True)
        return ordered[:, : self._count], torch.cat(node_ids, 1).gather(1, places[:, : self._count])

    def _columns(self, store: Store) -> Columns:
        layers = len(self._found)
        weights = torch.stack([weights for weights, _ in self._found], 1).flatten(0, 1)
        neighbors = torch.stack([node_ids for _, node_ids in self._found], 1).flatten(0, 1)
        ends = np.arange(len(neighbors) + 1, dtype=np.int32) * neighbors.shape[1]
        return {
            "id": original_ids(store, self._chosen.repeat_interleave(layers)),
            "layer": pa.array(np.tile(np.arange(1, layers + 1), len(self._chosen))),
            "neighbors": pa.ListArray.from_arrays(pa.array(ends), original_ids(store, neighbors.flatten())),
            "weights": as_lists(weights.float()),
        }
