"""What partitioning will cost, from counts alone: peak memory and rough time of every stage, and disk."""

from dataclasses import dataclass

from nfdist.memory import host_bytes
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.sources import SourceCounts
from nfdist.partitioning.streaming import least_memory
from nfdist.partitioning.workspace import shares

# Rough rates of one core, and the bytes that METIS and the edge order hold for a stored edge at their peak.
_EDGES_PER_SECOND = {"read": 4e6, "order edges": 8e6, "divide": 1.2e6, "write": 2.5e7}
_STREAMED_EDGES_PER_SECOND = 3.5e6  # of Amazon2M's shape; benchmarks/stream.py
_METIS_BYTES_PER_EDGE, _METIS_BYTES_PER_NODE = 56, 200
_ARRAY_BYTES_PER_LISTED_EDGE, _ARRAY_BYTES_PER_STORED_EDGE = 8, 4  # both its ends, then the source of each direction
_COPIES_OF_A_SORT = 4
_KEY_BYTES = 8  # of an edge that is sorted, which DuckDB spills about once
_NODE_BYTES = 48  # of a node on its way: its part, its place among the others, what its ids are sorted by
_PROCESS_BYTES = 350 << 20


@dataclass(frozen=True)
class Stage:
    """A stage with its peak of private memory, the disk it takes for a while and its time."""

    name: str
    peak_bytes: int
    seconds: float
    scratch_bytes: int = 0


@dataclass(frozen=True)
class Plan:
    """The stages of a partitioning run, the disk that the partition fills, and the edges that will be stored."""

    stages: tuple[Stage, ...]
    disk_bytes: int
    stored_edges: int
    method: str

    @property
    def peak_bytes(self) -> int:
        return max(stage.peak_bytes for stage in self.stages)

    @property
    def scratch_bytes(self) -> int:
        """Disk that is given back in the end, beyond that of the partition."""
        return max(stage.scratch_bytes for stage in self.stages)


def metis_bytes(nodes: int, stored_edges: int) -> int:
    """What METIS holds at its peak beside the graph."""
    return stored_edges * _METIS_BYTES_PER_EDGE + nodes * _METIS_BYTES_PER_NODE


def choose_method(recipe: Recipe, metis: int, stream: int, limit: int) -> str:
    """The method of a recipe or, where it has none, that with the fewest cut edges whose memory is within the limit."""
    if recipe.method:
        return recipe.method
    return "metis" if metis <= limit or recipe.parts == 1 else "stream" if stream <= limit else "random"


def least_bytes(nodes: int) -> int:
    """The memory that no batch can do without, for numbers of every node on their way."""
    return _PROCESS_BYTES + nodes * _NODE_BYTES


def plan(recipe: Recipe, counts: SourceCounts) -> Plan:
    """Estimate from counts; nothing is loaded."""
    limit = recipe.memory_bytes or host_bytes()
    stored_edges = counts.edges if recipe.directed else 2 * counts.edges
    width = 2 if counts.dtype == "float16" else 4
    nonzeros = counts.nonzeros
    feature_bytes = counts.nodes * counts.features * width if nonzeros is None else nonzeros * 8 + counts.nodes * 8
    node_bytes = feature_bytes + counts.nodes * (8 + 8 + 1)
    partition_bytes = node_bytes + stored_edges * 4 + counts.nodes * 16
    listed, stored = counts.edges * _ARRAY_BYTES_PER_LISTED_EDGE, stored_edges * _ARRAY_BYTES_PER_STORED_EDGE
    arrays = {  # what lies in memory as long as it fits, and in files after that
        "read": node_bytes + listed + counts.edges * 2 * _KEY_BYTES,
        "order edges": node_bytes + listed + stored,
        "divide": node_bytes + stored,
        "write": node_bytes + stored + partition_bytes // recipe.parts,
    }
    in_memory, sorted_in_memory = shares(limit - _PROCESS_BYTES)
    spilled = {"order edges": stored_edges * _KEY_BYTES}
    metis = metis_bytes(counts.nodes, stored_edges)
    held = min(arrays["divide"], in_memory)
    beside, streamed = least_bytes(counts.nodes) + held, least_memory(counts.nodes)
    method = choose_method(recipe, beside + metis, beside + streamed, limit)
    seconds = {name: 0.5 + max(stored_edges, counts.nodes) / rate for name, rate in _EDGES_PER_SECOND.items()}
    if method == "stream":
        seconds["divide"] = 0.5 + stored_edges / _STREAMED_EDGES_PER_SECOND
    elif method != "metis":
        seconds["divide"] = 0.5
    stages = []
    for name, size in arrays.items():
        sort = spilled.get(name, 0)
        peak = least_bytes(counts.nodes) + min(size, in_memory) + min(_COPIES_OF_A_SORT * sort, sorted_in_memory)
        scratch = max(size - in_memory, 0) + (sort if _COPIES_OF_A_SORT * sort > sorted_in_memory else 0)
        if name == "divide" and recipe.parts > 1:
            peak += {"metis": metis, "stream": streamed}.get(method, 0)
        stages.append(Stage(name, int(peak), seconds[name], int(scratch)))
    return Plan(tuple(stages), int(partition_bytes), stored_edges, method)
