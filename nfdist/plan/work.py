"""How long work takes, from counts and a host's rates: products, passes over memory, rows gathered, calls.

The terms follow the operations of attention/ops/cpu, sparse/spmm.py and store/induced.py. How often each number is
passed is counted from their code; the constants stand for what is not worth counting, and are measured by
benchmarks/plan.py. A plan is to be right within a factor of 2.
"""

from dataclasses import dataclass, replace

from nfdist.attention.ops.cpu.heavy_keys import few_are_heavy
from nfdist.config import Config
from nfdist.graph.counts import GraphCounts
from nfdist.model.build import model_class, weights_dtype
from nfdist.plan.rates import HostRates
from nfdist.training.batch_counts import BatchCounts
from nfdist.training.recomputing import recomputes

FLOAT32_BYTES = 4
CALL_SECONDS = 2e-5  # of one of torch's operations
STEP_CALLS, LAYER_CALLS = 150, 120  # in a training step besides its layers, and in each of these
KEPT_PASSES = 60  # of the log features of a row, forward and backward, the edge loss included
STATE_PASSES = 24  # of a hidden state of a row, likewise
NOISE_PASSES = 40  # of the noise of a key
DRAW_PASSES = 10.0  # of what chunks make of a row for all draws: these stay in caches
FEATURE_PASSES = 12
EDGE_PASSES = 150.0  # bytes of an edge of a batch while it is made
SCANNED_BYTES = 24.0  # of an edge of the graph that is looked at for a batch
BACKWARD = 4.5  # products of a step for one of its forward pass
AGAIN = 0.95  # of the work on a layer that is made again in the backward pass, a piece of rows and edges at a time


@dataclass(frozen=True)
class Work:
    """Operations of products, bytes passed and gathered, and calls."""

    flops: float = 0.0
    passed: float = 0.0
    gathered: float = 0.0
    calls: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        mine, theirs = vars(self).values(), vars(other).values()
        return Work(*(one + another for one, another in zip(mine, theirs, strict=True)))

    def times(self, factor: float) -> "Work":
        return Work(*(factor * one for one in vars(self).values()))

    def in_numbers_of(self, item_bytes: int) -> "Work":
        """With products of such numbers, in units of those of float32, which rates are of."""
        return replace(self, flops=self.flops * item_bytes / FLOAT32_BYTES)

    def seconds(self, rates: HostRates) -> float:
        """One after the other, by all threads that the rates are of."""
        return (
            self.flops / rates.product_flops
            + self.passed / rates.passed_bytes
            + self.gathered / rates.gathered_bytes
            + self.calls * CALL_SECONDS
        )


def step_work(config: Config, graph: GraphCounts, batch: BatchCounts, ranks: int = 1) -> Work:
    """A training step on one batch, and the making of the batch."""
    return _step_work(config, graph, batch, ranks).in_numbers_of(weights_dtype(config).itemsize)


def _step_work(config: Config, graph: GraphCounts, batch: BatchCounts, ranks: int) -> Work:
    item, n, f, c = weights_dtype(config).itemsize, batch.nodes, graph.features, config.model.channels
    sweeps = model_class(config.model.name).sweeps
    calls = STEP_CALLS + config.model.layers * LAYER_CALLS
    work = Work(calls=calls if sweeps else calls / 3)
    if config.train.batch_nodes:
        work += _batch_work(graph, batch)
    if graph.entries is None:
        work += Work(4 * n * f * c, FEATURE_PASSES * n * f * item)
    else:
        work += Work(gathered=2 * n * graph.entries * c * item, passed=FEATURE_PASSES * n * graph.entries * item)
    work += Work(6 * n * c * graph.outputs, 8 * n * graph.outputs * item)
    if not sweeps:
        return work + _baseline_work(config, batch, item)
    layer = layer_products(config, batch.nodes, len(batch.edges), training=True).times(BACKWARD)
    layer += _step_passes(config, batch, item)
    if recomputes(config.train, graph.nodes, ranks):
        layer += layer.times(AGAIN)
    convolutions = Work(2 * BACKWARD * n * c**2, STATE_PASSES * n * c * item, 2 * _edges(batch) * c * item)
    return work + layer.times(config.model.layers) + convolutions.times(config.model.graph_layers)


def layer_products(config: Config, n: float, hops: int, *, training: bool) -> Work:
    """Products of one layer's forward pass for n rows; letters are those of the shapes."""
    model, attention = config.model, config.attention
    h, m, c = model.heads, model.random_features, model.channels
    k = attention.noise_draws if training and attention.kind == "gumbel" else 1
    row: float = 2 * c * h * m + 2 * c * h * c + 2 * h * c * m + 2 * h * m * (k + 1) + 2 * h * k * m * c
    heavy = (
        training
        and attention.kind == "gumbel"
        and few_are_heavy(round(n), attention.temperature, weights_dtype(config))
    )
    row += 0 if heavy else 2 * h * k * m * c
    row += 2 * hops * c * c + 4 * model.feed_forward * c * c
    return Work(n * row)


def _step_passes(config: Config, batch: BatchCounts, item: int) -> Work:
    model, n = config.model, batch.nodes
    h, m, c, k = model.heads, model.random_features, model.channels, config.attention.noise_draws
    passed: float = KEPT_PASSES * h * m + STATE_PASSES * (1 + model.feed_forward) * c
    passed += NOISE_PASSES * h * k + DRAW_PASSES * h * k * m
    gathered = 2 * sum(batch.edges) * c + (5 * _edges(batch) * h * m if config.train.edge_loss else 0)
    return Work(0, n * passed * item, gathered * item)


def _baseline_work(config: Config, batch: BatchCounts, item: int) -> Work:
    n, c, layers = batch.nodes, config.model.channels, config.model.layers
    hidden = Work(6 * n * c * c, STATE_PASSES * n * c * item).times(layers - 1)
    return hidden + Work(gathered=2 * layers * _edges(batch) * c * item)


def _batch_work(graph: GraphCounts, batch: BatchCounts) -> Work:
    scanned = len(batch.edges) and batch.nodes * sum(graph.patterns[: len(batch.edges)]) / max(1, graph.nodes)
    rows = batch.nodes * graph.row_bytes(4)
    return Work(passed=EDGE_PASSES * sum(batch.edges) + SCANNED_BYTES * scanned + 2 * rows, gathered=rows)


def _edges(batch: BatchCounts) -> float:
    return batch.edges[0] if batch.edges else 0.0
