"""What partitioning will cost, from counts alone: peak memory and rough time of every stage, and disk."""

from dataclasses import dataclass

from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.sources import SourceCounts

# Rough rates of one core, and the bytes that METIS and the edge order hold for a stored edge at their peak.
_EDGES_PER_SECOND = {"read": 4e6, "order edges": 8e6, "divide": 1.2e6, "write": 2.5e7}
_METIS_BYTES_PER_EDGE, _METIS_BYTES_PER_NODE = 56, 200
_ORDER_BYTES_PER_EDGE = 22
_PROCESS_BYTES = 350 << 20


@dataclass(frozen=True)
class Stage:
    """A stage with its peak memory and its time."""

    name: str
    peak_bytes: int
    seconds: float


@dataclass(frozen=True)
class Plan:
    """The stages of a partitioning run, the disk it fills, and the edges that will be stored."""

    stages: tuple[Stage, ...]
    disk_bytes: int
    stored_edges: int

    @property
    def peak_bytes(self) -> int:
        return max(stage.peak_bytes for stage in self.stages)


def metis_bytes(nodes: int, stored_edges: int) -> int:
    """What METIS holds at its peak beside the graph."""
    return stored_edges * _METIS_BYTES_PER_EDGE + nodes * _METIS_BYTES_PER_NODE


def plan(recipe: Recipe, counts: SourceCounts) -> Plan:
    """Estimate from counts; nothing is loaded."""
    stored_edges = counts.edges if recipe.directed else 2 * counts.edges
    width = 2 if counts.dtype == "float16" else 4
    nonzeros = counts.nonzeros
    feature_bytes = counts.nodes * counts.features * width if nonzeros is None else nonzeros * 8 + counts.nodes * 8
    node_bytes = feature_bytes + counts.nodes * (8 + 8 + 1)
    edge_bytes = stored_edges * 4 + counts.nodes * 4
    held = _PROCESS_BYTES + node_bytes + counts.edges * 8  # the source stays in memory throughout
    peaks = {
        "read": held + counts.edges * 16,
        "order edges": held + stored_edges * _ORDER_BYTES_PER_EDGE,
        "divide": held + edge_bytes,
        "write": held + edge_bytes + (node_bytes + edge_bytes * 3) // recipe.parts,
    }
    if recipe.method == "metis" and recipe.parts > 1:
        peaks["divide"] += metis_bytes(counts.nodes, stored_edges)
    seconds = {name: 0.5 + max(stored_edges, counts.nodes) / rate for name, rate in _EDGES_PER_SECOND.items()}
    if recipe.method != "metis":
        seconds["divide"] = 0.5
    stages = tuple(Stage(name, int(peak), seconds[name]) for name, peak in peaks.items())
    return Plan(stages, int(node_bytes + edge_bytes + counts.nodes * 12), stored_edges)
