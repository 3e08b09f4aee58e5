"""papers100m-like: a graph of ogbn-papers100M's shape at any scale, made block by block.

A node has a place: classes lie one after another, in a class its communities, in a community the most cited first.
Everything of a node is a function of the seed and its place, everything of an edge one of the seed and the block of its
source's place, and a place becomes a row by arithmetic. So no table of nodes or edges is held: what is read goes
straight into the arrays of a workspace.

A node cites others of its community, of its class, or anyone, and the first of each the most often: the degrees have a
heavy tail. Few nodes are labeled, as in the original only papers of one archive are, and most have the class of their
community. Features are as in amazon2m-like: they tell little of one node and much of its neighborhood.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from nfdist import seeds
from nfdist.errors import PartitionError
from nfdist.partitioning.sources.formats.source_format import SourceCounts, SourceFormat, register
from nfdist.partitioning.sources.formats.synthetic import draw_communities
from nfdist.partitioning.sources.options import SourceOptions
from nfdist.partitioning.sources.raw_graph import RawGraph
from nfdist.partitioning.workspace import Workspace
from nfdist.store.gathered import gathered
from nfdist.store.ranges import Integers, offsets
from nfdist.store.row_shares import RowShares
from nfdist.store.source_graph import TEST, TRAIN, VALID

NAME = "papers100m-like"
NUM_FEATURES = 128
NUM_CLASSES = 172
_FULL_NODES, _FULL_EDGES = 111_059_956, 1_615_685_872  # ogbn-papers100M's
_MOST_NODES = 1 << 31  # rows are numbered in 32 bits

_LABELED = 0.0139
_SPLIT = (0.78, 0.86)  # of the labeled nodes: up to here for training, up to here for validation, the others for tests
_OWN_CLASS = 0.75  # the share of nodes that have the class of their community
_COMMUNITY_EDGES, _CLASS_EDGES = 0.55, 0.30  # the others go anywhere
_SKEW = 3  # how often a place is cited falls with this root of it: a power law with the exponent 2.5
_SPREAD, _LARGEST_OUT_DEGREE = 0.9, 40  # of the numbers of citations: of their logarithm, and in means
_CLASS_SIGNAL, _COMMUNITY_SIGNAL = 0.20, 0.12  # length of a center's entries, in standard deviations of the noise
_PLACES_AT_ONCE = 1 << 14
# In one number of 63 bits: a place of a block, a node, and an edge of a block, which has some 15 for every place.
_NODE_BITS, _NUMBER_BITS = 31, 18


def _sizes(scale: float) -> tuple[int, int]:
    """The number of nodes and of citations at a scale."""
    num_nodes = max(2, round(_FULL_NODES * scale))
    if num_nodes >= _MOST_NODES:
        most = _MOST_NODES / _FULL_NODES
        raise PartitionError(f"{NAME} at scale {scale:g} has {num_nodes:,} nodes: choose a scale below {most:.4g}")
    return num_nodes, min(round(_FULL_EDGES / _FULL_NODES * num_nodes), num_nodes * (num_nodes - 1) // 4)


def count(path: None, options: SourceOptions) -> SourceCounts:
    return SourceCounts(*_sizes(options.scale), NUM_FEATURES, None, "float16")


def read(path: None, name: str, options: SourceOptions, workspace: Workspace) -> RawGraph:
    """The graph at a scale: every citation once and none of a paper itself; the ranks of a world make blocks each."""
    num_nodes, num_edges = _sizes(options.scale)
    plan = _Plan.draw(num_nodes, num_edges, options.seed)
    world, scratch = workspace.world, workspace.scratch
    blocks = RowShares.equal(world, -(-num_nodes // _PLACES_AT_ONCE))
    shares = RowShares(world, np.minimum(blocks.bounds * _PLACES_AT_ONCE, num_nodes))
    own, first_edge = shares.own, plan.edges_before(shares.own.start)
    sources, targets = (scratch.array(plan.edges_before(own.stop) - first_edge, np.int32) for _ in range(2))
    labels = scratch.array(own.stop - own.start, np.int64)
    features = scratch.array((len(labels), NUM_FEATURES), np.float16)
    split = scratch.array(len(labels), np.int8)
    for start in range(own.start, own.stop, _PLACES_AT_ONCE):
        stop = min(start + _PLACES_AT_ONCE, num_nodes)
        edges = slice(plan.edges_before(start) - first_edge, plan.edges_before(stop) - first_edge)
        sources[edges], targets[edges] = plan.citations(start, stop)
        rows = slice(start - own.start, stop - own.start)
        labels[rows], split[rows], features[rows] = plan.nodes(start, stop)
        workspace.told(rows.stop, len(labels))
    facts = gathered(world, pa.table({"label": labels, "split": split}), scratch)
    labels, split = (facts[name].to_numpy() for name in ("label", "split"))
    members = {code: np.flatnonzero(split == code) for code in (TRAIN, VALID, TEST)}
    graph = RawGraph(name, sources, targets, features, labels, members=members, num_classes=NUM_CLASSES)
    return replace(graph, shares=shares, first_edge=first_edge)


@dataclass(frozen=True)
class _Plan:
    """Where communities and classes end among the places, and what all blocks share."""

    num_nodes: int
    num_edges: int
    seed: int
    shares: NDArray[np.float64]  # of the classes, added up
    class_of: NDArray[np.int64]  # a community
    community_ends: NDArray[np.int64]  # community c has the places ends[c] .. ends[c + 1] - 1
    class_ends: NDArray[np.int64]
    multiplier: int
    shift: int

    @classmethod
    def draw(cls, num_nodes: int, num_edges: int, seed: int) -> "_Plan":
        stream = _stream(seed, "plan")
        prior, per_class, ends = draw_communities(stream, num_nodes, NUM_CLASSES)
        community_ends = np.concatenate([[0], ends])
        multiplier = round(num_nodes * (math.sqrt(5) - 1) / 2) or 1
        while math.gcd(multiplier, num_nodes) > 1:
            multiplier += 1
        return cls(
            num_nodes,
            num_edges,
            seed,
            np.cumsum(prior),
            np.repeat(np.arange(NUM_CLASSES), per_class),
            community_ends,
            community_ends[offsets(per_class)],
            multiplier,
            int(stream.integers(num_nodes)),
        )

    def edges_before(self, place: int) -> int:
        """The number of citations by places before this one."""
        return self.num_edges * place // self.num_nodes

    def nodes(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int8], NDArray[np.float16]]:
        """Labels, -1 for none, splits and features of consecutive rows."""
        places = self._places(np.arange(start, stop))
        communities = self._communities(places)
        classes = self._classes(places, communities)
        labeled = self._uniform("labeled", places) < _LABELED
        drawn = np.searchsorted(_SPLIT, self._uniform("split", places), side="right")
        split = np.where(labeled, np.array([TRAIN, VALID, TEST])[drawn], 0).astype(np.int8)
        features = _stream(self.seed, "features", start).standard_normal((stop - start, NUM_FEATURES), np.float32)
        features += self._class_centers[classes]
        features += self._community_centers[communities]
        return np.where(labeled, classes, -1), split, features.astype(np.float16)

    def citations(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows of both ends of what consecutive places cite: every pair once, and nobody itself."""
        stream = _stream(self.seed, "edges", start)
        total = self.edges_before(stop) - self.edges_before(start)
        places = np.arange(start, stop)
        sources = np.repeat(places, self._out_degrees(stream, len(places), total))
        targets = self._cited(stream, places, sources)
        while len(wrong := _repeated_or_own(sources, targets)):
            # Drawn again among all: in a small graph a community has too few.
            targets[wrong] = stream.integers(self.num_nodes, size=len(wrong))
        return self._rows(sources), self._rows(targets)

    def _out_degrees(self, stream: np.random.Generator, count: int, total: int) -> Integers:
        """So many numbers that sum to `total`; in a small graph they are alike, or there might be too few to cite."""
        mean = total / count
        small = _LARGEST_OUT_DEGREE * mean > self.num_nodes // 2
        weights = stream.lognormal(sigma=0.0 if small else _SPREAD, size=count)
        np.minimum(weights, _LARGEST_OUT_DEGREE / 2 * weights.mean(), out=weights)
        ends = offsets(np.zeros(count, np.int64))
        ends[1:] = np.floor(np.cumsum(weights) / weights.sum() * total)
        ends[-1] = total
        return ends[1:] - ends[:-1]

    def _cited(self, stream: np.random.Generator, places: Any, sources: NDArray[np.int64]) -> NDArray[np.int64]:
        communities = self._communities(places)
        classes = self._classes(places, communities)
        of_source = sources - places[0]
        kind = stream.random(len(sources))
        low, high = np.zeros(len(sources), np.int64), np.full(len(sources), self.num_nodes)
        near = kind < _COMMUNITY_EDGES
        alike = ~near & (kind < _COMMUNITY_EDGES + _CLASS_EDGES)
        for chosen, groups, ends in (
            (near, communities, self.community_ends),
            (alike, classes, self.class_ends),
        ):
            group = groups[of_source[chosen]]
            low[chosen], high[chosen] = ends[group], ends[group + 1]
        empty = low == high  # as classes of a small graph are
        low[empty], high[empty] = 0, self.num_nodes
        return low + (stream.random(len(sources)) ** _SKEW * (high - low)).astype(np.int64)

    def _communities(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self.community_ends, places, side="right") - 1

    def _classes(self, places: NDArray[np.int64], communities: NDArray[np.int64]) -> NDArray[np.int64]:
        others = np.minimum(np.searchsorted(self.shares, self._uniform("class", places)), NUM_CLASSES - 1)
        return np.where(self._uniform("stray", places) < _OWN_CLASS, self.class_of[communities], others)

    def _uniform(self, purpose: str, places: NDArray[np.int64]) -> NDArray[Any]:
        """A number from 0 to 1 for every place."""
        key = torch.full((), seeds.derive(self.seed, NAME, purpose))
        bits = seeds.hash_ids(key, torch.from_numpy(places)).numpy().view(np.uint64)
        return (bits >> np.uint64(11)) * 2.0**-53

    def _centers(self, purpose: str, count: int, length: float) -> NDArray[np.float32]:
        drawn = _stream(self.seed, purpose, "centers").standard_normal((count, NUM_FEATURES), np.float32)
        return drawn * np.float32(length)

    @cached_property
    def _class_centers(self) -> NDArray[np.float32]:
        return self._centers("class", NUM_CLASSES, _CLASS_SIGNAL)

    @cached_property
    def _community_centers(self) -> NDArray[np.float32]:
        return self._centers("community", len(self.class_of), _COMMUNITY_SIGNAL)

    def _rows(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return (places * self.multiplier + self.shift) % self.num_nodes

    def _places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return (rows - self.shift) % self.num_nodes * pow(self.multiplier, -1, self.num_nodes) % self.num_nodes


def _repeated_or_own(sources: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers of the pairs of a block that are there before, and of those of a node and itself."""
    keys = (sources - sources[:1]) << _NODE_BITS | targets
    keys <<= _NUMBER_BITS  # below the number of the pair, so that the first of equal ones is the same on any machine
    keys |= np.arange(len(keys))
    keys.sort()
    repeated = keys[1:][keys[1:] >> _NUMBER_BITS == keys[:-1] >> _NUMBER_BITS] & ((1 << _NUMBER_BITS) - 1)
    return np.concatenate([repeated, np.flatnonzero(sources == targets)])


def _stream(seed: int, *purpose: str | int) -> np.random.Generator:
    return seeds.numpy_generator(seed, NAME, *purpose)


register(SourceFormat("papers", 1, read, count, datasets=(NAME,), options=("scale",)))
