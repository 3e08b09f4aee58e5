"""How long an evaluation works, from counts: sweeps, smoothing, and what is written.

As in work.py, passes are counted from the code where they are many, and constants are measured by benchmarks/plan.py,
in processor time of one thread beside the rates of one thread at the same time.
"""

from nfdist.config import Config
from nfdist.evaluation.placement import ROWS_AT_ONCE
from nfdist.evaluation.smoothing import Strengths
from nfdist.evaluation.strengths import CORRECTIONS, SCALES, SMOOTHINGS, sweeps
from nfdist.graph.counts import GraphCounts
from nfdist.model.build import model_class, weights_dtype
from nfdist.plan.work import Work, layer_products

SETUP_CALLS = 4000  # the model, the graph, files and records of an evaluation, whatever its size
CHUNK_CALLS = 40  # of a chunk of rows in a sweep of a layer
SMOOTHED_CALLS = 30  # of a chunk of rows in a sweep of smoothing
TRY_CALLS, TRY_PASSES = 50, 20  # of a candidate for the strengths of smoothing, besides its answers
FEATURE_PASSES, ANSWER_PASSES = 40, 40  # of a row's features as they are read and checked, and of its answers
EXPONENT_PASSES = 90  # of the random features of a row: an exponential takes as long as many numbers passed
STATE_PASSES = 10
SMOOTHED_PASSES = 14
MADE_EDGE_BYTES = 1500  # of an edge of a baseline's graph, which is sorted in both directions
LINE_BYTES = 64  # that narrow rows take, too
EMBEDDED_PASSES, STORED_PASSES = 70, 30  # of rows that are encoded and compressed, and of those written as they are
PREDICTED_BYTES = 20_000  # bytes that are passed for a row of predictions: its names, likeliest classes, encoding


def sweep_work(config: Config, graph: GraphCounts, own: float) -> Work:
    """All states and the answers of so many rows, each with its share of the graph's edges."""
    item, c, model = weights_dtype(config).itemsize, config.model.channels, config.model
    share = own / max(1, graph.nodes)
    chunks = -(-own // ROWS_AT_ONCE)
    if graph.entries is None:
        work = Work(2 * own * graph.features * c, FEATURE_PASSES * own * graph.features * item)
    else:
        work = Work(0, FEATURE_PASSES * own * graph.entries * item, own * graph.entries * c * item)
    work += Work(2 * own * c * graph.outputs, ANSWER_PASSES * own * graph.outputs * item, calls=chunks * CHUNK_CALLS)
    edges = sum(graph.patterns[: config.relation.num_patterns]) * share
    if not model_class(model.name).sweeps:
        return (work + _baseline_work(config, graph, own, item)).in_numbers_of(item)
    passed = own * item * (EXPONENT_PASSES * model.heads * model.random_features + STATE_PASSES * c)
    layer = layer_products(config, own, config.relation.num_patterns, training=False)
    layer += Work(0, passed, edges * c * item, chunks * CHUNK_CALLS)
    return (work + layer.times(model.layers) + layer.times(model.graph_layers / 2)).in_numbers_of(item)


def _baseline_work(config: Config, graph: GraphCounts, own: float, item: int) -> Work:
    c, edges = config.model.channels, 0
    if model_class(config.model.name).needs_graph:
        edges = graph.patterns[0]
    layer = Work(2 * own * c**2, 6 * own * c * item, edges * c * item, CHUNK_CALLS)
    return Work(passed=MADE_EDGE_BYTES * edges) + layer.times(config.model.layers)


def smoothing_work(graph: GraphCounts, own: float, item: int, validated: float, *, chooses: bool) -> Work:
    """Smoothing of so many rows by strengths that are known or that are chosen by so many rows: as many as can be."""
    share, row = own / max(1, graph.nodes), max(LINE_BYTES, graph.outputs * item)
    chunks = -(-own // ROWS_AT_ONCE)
    sweep = Work(0, SMOOTHED_PASSES * own * row, graph.patterns[0] * share * row, chunks * SMOOTHED_CALLS)
    if not chooses:
        return sweep.times(sweeps(Strengths(CORRECTIONS[-1], SCALES[-1], SMOOTHINGS[-1])))
    tries = len(CORRECTIONS) * len(SCALES) + 2 * len(SMOOTHINGS)
    return sweep.times(sweeps(None)) + Work(passed=TRY_PASSES * validated * row, calls=TRY_CALLS).times(tries)


def writing_work(config: Config, graph: GraphCounts, own: float, states: int) -> Work:
    """Predictions, embeddings and so many states of some rows, encoded."""
    item, c, model = weights_dtype(config).itemsize, config.model.channels, model_class(config.model.name)
    embedded = EMBEDDED_PASSES * 4 * c if model.sweeps else 0
    return Work(passed=own * (PREDICTED_BYTES + embedded + STORED_PASSES * states * c * item), calls=SETUP_CALLS)
