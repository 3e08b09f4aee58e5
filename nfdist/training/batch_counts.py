"""How large batches will be, before any is made: the nodes, edges and copies of a rank in a typical step."""

import math
from dataclasses import dataclass

from nfdist.config import Config
from nfdist.graph.counts import GraphCounts
from nfdist.graph.division import divide


@dataclass(frozen=True)
class BatchCounts:
    """What one rank has in a batch: its nodes, copies of other ranks' nodes, and the edges of every pattern.

    `entries` are the stored features of a row where rows are sparse. An epoch has so many `batches`.
    """

    nodes: float
    copies: float
    edges: tuple[float, ...]
    labeled: float
    batches: int


def count_batch(config: Config, graph: GraphCounts, ranks: int = 1) -> BatchCounts:
    """The largest rank's part of a batch, as it is on average."""
    train, patterns = config.train, graph.patterns[: config.relation.num_patterns]
    share = graph.trained / max(1, graph.nodes)
    if train.batch_nodes == 0:
        return _whole_graph(config, graph, ranks, patterns, share)
    of_all, walk = train.batch_from == "all", train.walk_length + 1 if train.sampling == "walks" else 1
    pool = graph.nodes if of_all else graph.trained * walk
    batches = max(1, -(-pool // (train.batch_nodes * ranks)))
    nodes = pool / batches / ranks
    if train.sampling == "walks":
        nodes = min(graph.nodes, train.batch_nodes)
    taken = nodes / max(1, graph.nodes)  # by one rank, of all nodes
    crosses = _crosses(config, ranks)
    reach = ranks if crosses else 1
    edges = tuple(nodes + max(0, pattern - graph.nodes) * taken * min(1.0, taken * reach) for pattern in patterns)
    if train.sampling == "local" and not crosses:
        edges = tuple(nodes + (count - nodes) * _locality(graph, ranks) for count in edges)
    if train.sampling == "walks":
        edges = tuple(min(nodes**2, count + nodes * _steps_kept(config)) for count in edges)
    copies = nodes * (ranks - 1) * _heard(graph, patterns, taken) if crosses else 0.0
    return BatchCounts(nodes, copies, edges, nodes * (share if of_all else 1 / walk), batches)


def _whole_graph(
    config: Config, graph: GraphCounts, ranks: int, patterns: tuple[int, ...], share: float
) -> BatchCounts:
    own = max(divide(graph.parts, ranks), key=len)
    part = len(own) / max(1, graph.nodes)
    copies = 0.0
    if _crosses(config, ranks):
        inside = [one for one in graph.parts if one.start >= own.start and one.stop <= own.stop]
        halo = sum(one.halo_nodes for one in inside) if inside else graph.nodes
        copies = min(graph.nodes - len(own), halo if len(patterns) == 1 and inside else graph.nodes)
    return BatchCounts(len(own), copies, tuple(pattern * part for pattern in patterns), len(own) * share, 1)


def _crosses(config: Config, ranks: int) -> bool:
    return config.relation.scope == "world" and ranks > 1 and config.relation.num_patterns > 0


def _locality(graph: GraphCounts, ranks: int) -> float:
    """How many times likelier than among all nodes an edge is among those of a rank's own parts."""
    edges = sum(part.edges for part in graph.parts)
    inside = sum(part.edges - part.cut_edges for part in graph.parts)
    spread = min(ranks, len(graph.parts))
    return max(1.0, spread * inside / max(1, edges))


def _steps_kept(config: Config) -> float:
    """Edges that walks have by themselves, a node: each step is one, in both directions."""
    return 2 * config.train.walk_length / (config.train.walk_length + 1)


def _heard(graph: GraphCounts, patterns: tuple[int, ...], taken: float) -> float:
    """How likely it is that a node of another rank sends to a batch that takes this share of all nodes."""
    degree = max(patterns, default=0) / max(1, graph.nodes)
    return 1 - math.exp(-degree * taken)
