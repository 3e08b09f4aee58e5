"""Counts of a graph: what memory, traffic and time are worked out from, before anything of it is read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nfdist import seeds
from nfdist.store.manifest import Manifest, Part, part_file
from nfdist.store.ranges import joined
from nfdist.store.store import Store

SAMPLED_NODES = 200  # whose paths stand for those of all; by chance the estimate is off by a tenth or so


@dataclass(frozen=True)
class GraphCounts:
    """A partition by its numbers alone.

    `entries` are the stored features of a node where rows are sparse, None where they are dense. `patterns` are the
    edges of (A + I)^j on the whole graph, self-loops included, for j = 1 and as many more as are known.
    """

    nodes: int
    edges: int
    features: int
    outputs: int
    entries: float | None
    feature_bytes: int
    label_bytes: int
    trained: int
    validated: int
    parts: tuple[Part, ...]
    directed: bool
    weighted: bool
    gaps: bool
    patterns: tuple[int, ...]

    @staticmethod
    def of(manifest: Manifest) -> "GraphCounts":
        """What a manifest tells, with the first pattern alone."""
        width = np.dtype(manifest.feature_dtype).itemsize
        entries = None
        if manifest.feature_kind == "sparse":
            names = (part_file(number, "features-values") for number in range(len(manifest.parts)))
            entries = sum(manifest.files[name].size_bytes for name in names) / width / max(1, manifest.num_nodes)
        return GraphCounts(
            nodes=manifest.num_nodes,
            edges=manifest.num_edges,
            features=manifest.num_features,
            outputs=manifest.num_classes,
            entries=entries,
            feature_bytes=width,
            label_bytes=manifest.label_shape[0] if manifest.label_shape else 8,
            trained=manifest.split_counts.get("train", 0),
            validated=manifest.split_counts.get("valid", 0),
            parts=manifest.parts,
            directed=manifest.directed,
            weighted=manifest.weighted,
            gaps=bool(manifest.schema.gap_features),
            patterns=(manifest.num_edges + manifest.num_nodes,),
        )

    def with_patterns(self, store: Store, order: int) -> "GraphCounts":
        """The same with patterns up to an order, by the paths to some nodes of the parts that are here."""
        wanted = max(1, order)
        if len(self.patterns) >= wanted:
            return self
        if len(store.held_parts) < len(store.parts):
            return replace(self, patterns=self._by_degrees(wanted))
        return replace(self, patterns=(self.patterns[0], *_sampled_patterns(store, wanted)[1:]))

    def _by_degrees(self, order: int) -> tuple[int, ...]:
        """As if no two paths met, which they do: too many rather than too few."""
        mean = self.patterns[0] / max(1, self.nodes)
        return tuple(round(self.nodes * min(self.nodes, mean**hop)) for hop in range(1, order + 1))

    def row_bytes(self, item_bytes: int) -> float:
        """The features of one node as a model takes them, where numbers take so many bytes."""
        return self.features * item_bytes if self.entries is None else 8 + self.entries * (8 + item_bytes)


def read_counts(partition: Path | str, order: int) -> GraphCounts:
    """The counts of a partition on this host, with its patterns up to an order."""
    store = Store.open(partition, Store.available_parts(partition))
    return GraphCounts.of(store.manifest).with_patterns(store, order)


def _sampled_patterns(store: Store, order: int) -> list[int]:
    generator = seeds.numpy_generator(0, "sampled paths")
    chosen = generator.permutation(store.num_nodes)[:SAMPLED_NODES]
    totals = [0] * order
    for node in chosen.tolist():
        reached = np.array([node], dtype=np.int64)
        for hop in range(order):
            reached = np.union1d(reached, _sources_of(store, reached))
            totals[hop] += len(reached)
    return [round(total * store.num_nodes / max(1, len(chosen))) for total in totals]


def _sources_of(store: Store, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    found: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
    for number, part in enumerate(store.parts):
        inside: Sequence[int] | NDArray[np.int64] = nodes[(nodes >= part.start) & (nodes < part.stop)] - part.start
        if len(inside):
            starts, degrees, sources = store.in_edges_of(number, np.asarray(inside))
            found.append(sources[joined(starts, degrees)].astype(np.int64))
    return np.concatenate(found)
