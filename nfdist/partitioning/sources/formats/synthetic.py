"""amazon2m-like: a graph of Amazon2M's shape at any scale, made on the spot.

Nodes live in communities, communities belong to one of 47 classes of uneven size, and most nodes have the class of
their community. Half-degrees follow a power law: a node holds that many tickets. Tickets lie in the order of classes
and communities, so "someone of my community", "someone of my class" and "anyone" are three ranges to draw a ticket
from, and hubs are drawn as often as their degree asks. Features are the class's center under heavy noise, so they
tell little of one node and much of its neighborhood.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfdist import seeds
from nfdist.partitioning.sources.formats.source_format import SourceCounts, SourceFormat, register
from nfdist.partitioning.sources.options import SourceOptions
from nfdist.partitioning.sources.raw_graph import RawGraph
from nfdist.partitioning.workspace import Workspace
from nfdist.scratch import Scratch
from nfdist.store.ranges import offsets, pieces

NAME = "amazon2m-like"
NUM_FEATURES = 100
NUM_CLASSES = 47
_FULL_NODES, _FULL_EDGES = 2_449_029, 61_859_140  # Amazon2M's, each edge once

_COMMUNITY_NODES = 600  # on average, where the graph is large enough
_CLASS_EXPONENT = 0.9  # the size of the r-th class is r to the minus this
_DEGREE_EXPONENT = 2.3  # of the power law's density
_LARGEST_DEGREE = 400  # in means
_OWN_CLASS = 0.75  # the share of nodes that have the class of their community
_COMMUNITY_EDGES, _CLASS_EDGES = 0.55, 0.30  # the others go anywhere
_CLASS_SIGNAL = 0.20  # length of a class center's entries, in standard deviations of the noise
_COMMUNITY_SIGNAL = 0.12

_EDGES_AT_ONCE = 1 << 22
_ROWS_AT_ONCE = 1 << 17


def _sizes(scale: float) -> tuple[int, int]:
    """The number of nodes and of undirected edges at a scale."""
    num_nodes = max(2, round(_FULL_NODES * scale))
    return num_nodes, min(round(_FULL_EDGES / _FULL_NODES * num_nodes), num_nodes * (num_nodes - 1) // 4)


def count(path: None, options: SourceOptions) -> SourceCounts:
    return SourceCounts(*_sizes(options.scale), NUM_FEATURES, None, "float32")


def read(path: None, name: str, options: SourceOptions, workspace: Workspace) -> RawGraph:
    """The graph at a scale, each undirected edge once and without self-loops."""
    seed = options.seed
    num_nodes, num_edges = _sizes(options.scale)
    plan = _Plan.draw(num_nodes, num_edges, seed, workspace.scratch)
    rows = _stream(seed, "order").permutation(num_nodes).astype(np.int32)  # a node's row, by its place in the plan
    sources, targets = _draw_edges(plan, rows, num_edges, seed, workspace)
    labels = np.empty(num_nodes, np.int64)
    labels[rows] = plan.labels
    communities = np.empty(num_nodes, np.int32)
    communities[rows] = plan.communities
    features = _draw_features(labels, communities, seed, workspace.scratch)
    return RawGraph(name, sources, targets, features, labels, num_classes=NUM_CLASSES)


@dataclass(frozen=True)
class _Plan:
    """Nodes by class and community: each one's community and label, and the ranges of tickets to draw from."""

    communities: NDArray[np.int32]
    labels: NDArray[np.int64]
    tickets: NDArray[np.int32]
    community_ends: NDArray[np.int64]  # community c holds tickets ends[c] .. ends[c + 1]
    class_ends: NDArray[np.int64]  # and the communities of class k tickets ends[k] .. ends[k + 1]

    @classmethod
    def draw(cls, num_nodes: int, num_edges: int, seed: int, scratch: Scratch) -> "_Plan":
        stream = _stream(seed, "plan")
        prior, per_class, ends = draw_communities(stream, num_nodes, NUM_CLASSES)
        class_of = np.repeat(np.arange(NUM_CLASSES), per_class)
        communities = np.repeat(np.arange(len(class_of), dtype=np.int32), np.diff(ends, prepend=0))
        strays = stream.random(num_nodes) >= _OWN_CLASS
        labels = np.where(strays, stream.choice(NUM_CLASSES, size=num_nodes, p=prior), class_of[communities])
        degrees = _draw_degrees(stream, num_nodes, num_edges)
        before = offsets(degrees)  # tickets of the nodes before
        tickets = scratch.array(int(before[-1]), np.int32)
        for piece in pieces(degrees, _EDGES_AT_ONCE):
            holders = np.arange(piece.start, piece.stop, dtype=np.int32)
            tickets[before[piece.start] : before[piece.stop]] = np.repeat(holders, degrees[piece])
        community_ends = before[np.concatenate([[0], ends])]
        class_ends = community_ends[np.concatenate([[0], np.cumsum(per_class)])]
        return cls(communities, labels, tickets, community_ends, class_ends)


def draw_communities(
    stream: np.random.Generator, num_nodes: int, num_classes: int
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """The share of every class, its number of communities, and where the nodes of each of these end, class by class."""
    prior = np.arange(1, num_classes + 1) ** -_CLASS_EXPONENT
    prior /= prior.sum()
    num_communities = max(2 * num_classes, num_nodes // _COMMUNITY_NODES)
    per_class = np.maximum(1, np.rint(prior * num_communities)).astype(np.int64)
    class_of = np.repeat(np.arange(num_classes), per_class)
    # A community's size varies by class, so that classes keep their share however few communities they have.
    shares = stream.lognormal(sigma=0.5, size=len(class_of))
    shares *= prior[class_of] / np.bincount(class_of, shares)[class_of]
    return prior, per_class, np.rint(np.cumsum(shares) / shares.sum() * num_nodes).astype(np.int64)


def _draw_degrees(stream: np.random.Generator, num_nodes: int, num_edges: int) -> NDArray[np.int64]:
    """Half-degrees of a power law, at least 1 and with the wanted mean."""
    weights = (1 - stream.random(num_nodes)) ** (-1 / (_DEGREE_EXPONENT - 1))
    mean = max(num_edges / num_nodes, 1.0)
    weights *= mean / weights.mean()
    np.minimum(weights, min(_LARGEST_DEGREE * mean, num_nodes / 4), out=weights)
    degrees: NDArray[np.int64] = np.maximum(1, np.floor(weights + stream.random(num_nodes))).astype(np.int64)
    return degrees


def _draw_edges(
    plan: _Plan, rows: NDArray[np.int32], num_edges: int, seed: int, workspace: Workspace
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Unique undirected edges: what is drawn twice is drawn again, and the surplus left out evenly."""
    num_nodes, scratch = len(rows), workspace.scratch
    pairs: NDArray[np.int64] = np.empty(0, np.int64)
    for attempt in range(12):
        missing = num_edges - len(pairs)
        if missing <= 0:
            break
        wanted = int((2.0 if attempt else 1.06) * missing) + 16
        held = (pairs[start : start + _EDGES_AT_ONCE] for start in range(0, len(pairs), _EDGES_AT_ONCE))
        drawn = itertools.chain(held, _draw_pairs(plan, rows, wanted, attempt, seed))
        pairs = _distinct(drawn, len(pairs) + wanted, workspace)
    num_edges = min(num_edges, len(pairs))
    ends = [scratch.array(num_edges, np.int32) for _ in range(2)]
    for start in range(0, num_edges, _EDGES_AT_ONCE):
        places = np.arange(start, min(start + _EDGES_AT_ONCE, num_edges))
        chosen = pairs[places * len(pairs) // num_edges]
        for end, numbers in zip(ends, np.divmod(chosen, num_nodes), strict=True):
            end[places[0] : places[-1] + 1] = numbers
    return ends[0], ends[1]


def _distinct(pairs: Iterable[NDArray[np.int64]], most: int, workspace: Workspace) -> NDArray[np.int64]:
    """All pairs, of which there are `most`, in order and each once."""
    found = workspace.scratch.array(most, np.int64)
    filled = passed = 0
    for (keys,) in workspace.engine.ascending(((chunk,) for chunk in pairs), ("pair",), 1):
        keep = np.ones(len(keys), np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=keep[1:])
        keep[0] = filled == 0 or keys[0] != found[filled - 1]
        fresh = keys[keep]
        found[filled : filled + len(fresh)] = fresh
        filled, passed = filled + len(fresh), passed + len(keys)
        workspace.told(passed, most)
    return found[:filled]


def _draw_pairs(
    plan: _Plan, rows: NDArray[np.int32], wanted: int, attempt: int, seed: int
) -> Iterator[NDArray[np.int64]]:
    """Chunks of undirected pairs, each as smaller * n + larger, without self-loops."""
    num_nodes, num_tickets = len(rows), len(plan.tickets)
    for start in range(0, wanted, _EDGES_AT_ONCE):
        stream = _stream(seed, "edges", attempt, start)
        count = min(_EDGES_AT_ONCE, wanted - start)
        sources = plan.tickets[stream.integers(num_tickets, size=count)]
        kind = stream.random(count, dtype=np.float32)
        low, high = np.zeros(count, np.int64), np.full(count, num_tickets)
        same_community = kind < _COMMUNITY_EDGES
        same_class = ~same_community & (kind < _COMMUNITY_EDGES + _CLASS_EDGES)
        for chosen, groups, ends in (
            (same_community, plan.communities, plan.community_ends),
            (same_class, plan.labels, plan.class_ends),
        ):
            group = groups[sources[chosen]]
            low[chosen], high[chosen] = ends[group], ends[group + 1]
        # In a small graph a class may have no community with nodes: then anyone will do.
        empty = low == high
        low[empty], high[empty] = 0, num_tickets
        targets = plan.tickets[low + (stream.random(count) * (high - low)).astype(np.int64)]
        ends_a, ends_b = rows[sources], rows[targets]
        pairs = np.minimum(ends_a, ends_b) * np.int64(num_nodes) + np.maximum(ends_a, ends_b)
        yield pairs[ends_a != ends_b]


def _draw_features(
    labels: NDArray[np.int64], communities: NDArray[np.int32], seed: int, scratch: Scratch
) -> NDArray[np.float32]:
    """Weak signals of the class and of the community under standard normal noise, [n, 100]."""
    centers = _stream(seed, "class centers").standard_normal((NUM_CLASSES, NUM_FEATURES), dtype=np.float32)
    places = _stream(seed, "community centers").standard_normal((communities.max() + 1, NUM_FEATURES), dtype=np.float32)
    centers *= _CLASS_SIGNAL
    places *= _COMMUNITY_SIGNAL
    features = scratch.array((len(labels), NUM_FEATURES), np.float32)
    for start in range(0, len(labels), _ROWS_AT_ONCE):
        chunk = features[start : start + _ROWS_AT_ONCE]
        _stream(seed, "features", start).standard_normal(out=chunk, dtype=np.float32)
        chunk += centers[labels[start : start + _ROWS_AT_ONCE]]
        chunk += places[communities[start : start + _ROWS_AT_ONCE]]
    return features


def _stream(seed: int, *purpose: str | int) -> np.random.Generator:
    return seeds.numpy_generator(seed, NAME, *purpose)


# Before all others: what is made is not looked for.
register(SourceFormat("synthetic", 0, read, count, datasets=(NAME,), options=("scale",)))
