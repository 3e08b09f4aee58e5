"""The memory of an evaluation, from counts: the formulas by which `FullGraph` divides its own, and what they add up to.

Constants are of evaluations that benchmarks/plan.py measures.
"""

import math
from dataclasses import dataclass

from nfdist.config import Config, ModelConfig, RelationConfig
from nfdist.evaluation.budget import NODE_BYTES, Budget
from nfdist.evaluation.gathered_writer import FEW_ROWS_AT_ONCE
from nfdist.evaluation.gathered_writer import ROWS_AT_ONCE as ROWS_WRITTEN_AT_ONCE
from nfdist.evaluation.placement import ROWS_AT_ONCE
from nfdist.evaluation.strengths import SMOOTHINGS
from nfdist.graph.counts import GraphCounts
from nfdist.graph.division import divide
from nfdist.graph.workers import MOST_WORKERS
from nfdist.model.build import count_weights, model_class, weights_dtype

EDGE_BYTES = 24  # of a baseline's edge, besides its weight: both ends, both directions, positions between these
INDUCED_BYTES = 34  # of an edge while a baseline's graph is made
# Of the bound on the work on rows, what is there at a time: by one worker, or by several, each with a store of freed
# blocks of its own, most of which the C library keeps (memory.py: return_freed) up to so many bytes a store.
WORK_SHARE, WORK_SHARE_OF_SEVERAL, KEPT_SHARE, KEPT_BYTES = 0.75, 1.1, 0.85, 64 << 20
SMOOTHED_COPIES = 6  # of the answers of a row while it is smoothed
WRITER_BYTES = 26 << 20  # Arrow's buffers for two files of rows
WRITTEN_SHARE = 1 / 64  # of a limit
TIGHT_BYTES = 1 << 30  # a limit that leaves no room for two files that are written beside each other
ROW_COPIES_WRITTEN = 6.5  # as they are, as bytes, as they arrive, as Arrow has them, encoded and compressed


def row_numbers(
    model: ModelConfig, num_features: int, num_outputs: int, *, gaps: bool = False, labels: bool = False
) -> int:
    """More numbers than the work on one row holds at a time."""
    features = model.heads * model.random_features
    inputs = num_features * (3 if gaps else 1)  # gaps, and rows without any
    inputs += 4 * num_outputs if labels else 0  # answers, as they are and as numbers
    widths = 10 + model.heads + model.feed_forward + (3 if model.feed_forward else 0)
    return inputs + num_outputs + widths * model.channels + 6 * features


def state_shapes(
    model: ModelConfig, relation: RelationConfig, num_outputs: int, own: int, sources: int
) -> list[tuple[int, int]]:
    """Of the logits, those of a branch, and two states of all rows or more; `sources` are own rows and copies."""
    logits = [(own, num_outputs), (own, num_outputs if model.graph_layers else 0)]
    return logits + [(sources, model.channels)] * max(2, relation.num_partials + 1)


@dataclass(frozen=True)
class SweepMemory:
    """Bytes of one rank while it evaluates the whole graph, without its libraries.

    `held` is what has a row for every node or edge and may lie in files where there is a limit, `in_files` what of it
    does; `work` is the work on some rows. When that is over, `kept` of it stays with the process, and smoothing or
    the writing of files takes `after`. `least` is what no setting could do without.
    """

    held: float
    in_files: float
    work: float
    kept: float
    after: float
    least: float

    @property
    def total(self) -> float:
        return self.held - self.in_files + max(self.work, self.kept + self.after)


def sweep_memory(
    config: Config,
    graph: GraphCounts,
    *,
    ranks: int = 1,
    threads: int = 1,
    limit_bytes: int | None = None,
    process_bytes: int = 0,
    writes: bool = True,
) -> SweepMemory:
    """What the largest rank takes; a process that is given a limit holds `process_bytes` before it begins."""
    item = weights_dtype(config).itemsize
    own = max(map(len, divide(graph.parts, ranks)))
    fixed = count_weights(config, graph.features, graph.outputs, graph.nodes) * item
    workers = max(1, min(threads, MOST_WORKERS))
    smoothed = config.evaluate.smoothing == "auto"
    smoothing = _smoothing_bytes(config, graph, own, item) if smoothed else 0.0
    answers = graph.outputs * own * item if smoothed else 0
    chunks = SMOOTHED_COPIES * min(own, workers * ROWS_AT_ONCE) * graph.outputs * item if smoothed else 0.0
    at_once = rows_written_at_once(limit_bytes, config.model.channels, item)
    written = _writing_bytes(config, min(own, at_once), item) if writes else 0.0
    after = max(smoothing + chunks, answers + written)
    if not model_class(config.model.name).sweeps:
        divided = ranks > 1 and model_class(config.model.name).divides
        held, work = _divided(config, graph, own, ranks, item) if divided else _in_memory(config, graph, item)
        return SweepMemory(held + fixed, 0.0, work, 0.0, after, held / 2)
    copies = 0 if ranks == 1 or not config.relation.num_patterns else graph.nodes - own
    shapes = state_shapes(config.model, config.relation, graph.outputs, own, own + copies)
    states = item * sum(map(math.prod, shapes))
    held = states + _edges_held(config, graph, own, copies, ranks, item)
    budget = Budget.of(limit_bytes, process_bytes, own)
    in_files = 0.0 if budget.held_bytes is None else max(0.0, held + smoothing - budget.held_bytes)
    numbers = row_numbers(
        config.model, graph.features, graph.outputs, gaps=graph.gaps, labels=config.train.label_inputs > 0
    )
    if graph.entries is not None:
        numbers += round(3 * graph.entries) - graph.features
    rows = min(own, workers * ROWS_AT_ONCE, budget.work_bytes // (item * numbers))
    share = WORK_SHARE if workers == 1 else WORK_SHARE_OF_SEVERAL
    passing = share * rows * numbers * item
    kept = 0.0 if workers == 1 else min(KEPT_SHARE * passing, workers * KEPT_BYTES)
    work = fixed + NODE_BYTES * own + passing
    in_files = min(in_files, held + smoothing)
    return SweepMemory(held, in_files, work, kept, after, 0.0 if limit_bytes else states / 2)


def _edges_held(config: Config, graph: GraphCounts, own: int, copies: int, ranks: int, item: int) -> float:
    """Degrees, factors and totals of rows, and copies of edges where they cannot be used as they are on disk."""
    hops = config.relation.num_patterns
    held: float = (
        own * hops * 2 * item + own * item + ((own + copies) * (hops * item + 8) if config.relation.normalize else 0)
    )
    if hops and (ranks > 1 or graph.directed):
        share = own / max(1, graph.nodes)
        copied = graph.patterns[: hops if ranks > 1 else 1]  # by one rank what may be there twice
        held += sum(copied) * share * (8 if graph.weighted else 4) + own * hops * 8
        held += graph.nodes * 5 if ranks > 1 else 0
    return held


def _smoothing_bytes(config: Config, graph: GraphCounts, own: int, item: int) -> float:
    """Two states and answers of all rows, and what every strength gives the validation nodes."""
    return item * graph.outputs * (3 * own + (len(SMOOTHINGS) + 2) * num_validated(config, graph, own))


def num_validated(config: Config, graph: GraphCounts, own: int) -> float:
    """The validation nodes among so many rows, or more where a split is drawn anew."""
    validated = graph.nodes - graph.trained if config.data.split != "stored" else graph.validated
    return validated * own / max(1, graph.nodes)


def rows_written_at_once(limit_bytes: int | None, channels: int, item: int) -> int:
    """How many rows are on their way into files at a time, the same on all ranks."""
    if limit_bytes is None:
        return ROWS_WRITTEN_AT_ONCE
    fitting = int(limit_bytes * WRITTEN_SHARE / (ROW_COPIES_WRITTEN * _written_row(channels, item)))
    return max(FEW_ROWS_AT_ONCE, min(ROWS_WRITTEN_AT_ONCE, fitting))


def _writing_bytes(config: Config, rows: int, item: int) -> float:
    """Predictions and embeddings, so many rows at a time."""
    return WRITER_BYTES + rows * ROW_COPIES_WRITTEN * _written_row(config.model.channels, item)


def _written_row(channels: int, item: int) -> int:
    return item * channels + 16


def _divided(config: Config, graph: GraphCounts, own: int, ranks: int, item: int) -> tuple[float, float]:
    """What one of several ranks holds of a baseline's graph, and what comes while it is evaluated."""
    edges = _edges_held(config, graph, own, graph.nodes - own, ranks, item)
    width = config.model.channels + graph.outputs
    return edges + NODE_BYTES * own, (graph.nodes * width + 3 * own * width) * item


def _in_memory(config: Config, graph: GraphCounts, item: int) -> tuple[float, float]:
    """What a baseline's graph holds, and what comes while it is made or evaluated."""
    edges = graph.patterns[0] if model_class(config.model.name).needs_graph else 0
    features = graph.row_bytes(item) * graph.nodes
    held = features + edges * (EDGE_BYTES + item) + NODE_BYTES * graph.nodes
    held += model_class(config.model.name).pair_numbers(config, training=False) * graph.nodes**2 * item
    passing = features + graph.nodes * (3 * config.model.channels + 2 * graph.outputs) * item
    making = INDUCED_BYTES * edges - edges * (EDGE_BYTES + item)
    return held, max(passing, making)
