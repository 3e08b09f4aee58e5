"""The memory of a training step, from counts: what is kept for the backward pass and what comes beside it.

Each term stands for tensors of the code that is named beside it. What terms leave out, the buffers of chunks and the
holes between tensors, is in the constants, which benchmarks/plan.py measures.
"""

from dataclasses import dataclass

from nfdist.attention.ops.cpu.heavy_keys import few_are_heavy
from nfdist.config import Config
from nfdist.graph.counts import GraphCounts
from nfdist.model.build import count_weights, model_class, weights_dtype
from nfdist.model.recomputed import ROWS_AT_ONCE
from nfdist.sparse.adjacency import EDGES_AT_ONCE
from nfdist.training.batch_counts import BatchCounts
from nfdist.training.recomputing import recomputes

INDEX_BYTES = 4  # of rows and edges, which fit int32 in any batch that fits a machine
NODE_BYTES = 28  # of every node of the graph: its split, the order of an epoch, whether and where it is in a batch
ROW_BYTES = 60  # of a batch's row: ids, labels, and the ends of its edges in both directions
EDGE_BYTES = 24  # of a batch's edge, besides its weights: both ends, both directions, and positions between these
LARGE_EDGE_BYTES = 4  # of one of so many edges that their weights are made a piece at a time: its source
INDUCED_BYTES = 34  # of an edge while a batch is made (store/induced.py, sparse/adjacency.py: transposed)
CHUNK_BYTES = 30 << 20  # buffers of the chunks that attention works in
HOLES = 1.1  # what blocks between others take


@dataclass(frozen=True)
class StepMemory:
    """Bytes of one rank while it trains, without its libraries.

    `fixed` does not depend on the batch: weights and the like, and what a rank knows of all nodes. `batch` is the batch
    itself, `kept` what the forward pass leaves for the backward pass, and `more` the most that comes beside both for a
    moment. `least` is what no way of computing the step could do without.
    """

    fixed: float
    batch: float
    kept: float
    more: float
    least: float

    @property
    def of_batch(self) -> float:
        """What grows with the batch, with the holes between its tensors."""
        return HOLES * (self.batch + self.kept + self.more)

    @property
    def total(self) -> float:
        return self.fixed + self.of_batch


def step_memory(config: Config, graph: GraphCounts, batch: BatchCounts, ranks: int = 1) -> StepMemory:
    """What a step of such batches takes."""
    item = weights_dtype(config).itemsize
    weights = count_weights(config, graph.features, graph.outputs, graph.nodes) * item
    fixed = (5 if config.train.ema else 4) * weights + NODE_BYTES * graph.nodes
    rows = batch_bytes(config, graph, batch, item)
    if model_class(config.model.name).sweeps:
        fixed += CHUNK_BYTES
        layer, state = _layer_numbers(config, graph, batch), batch.nodes * config.model.channels
        if recomputes(config.train, graph.nodes, ranks):  # one layer at a time beside the states
            kept = (config.model.layers + 1) * state + batch.nodes * graph.outputs
            row = config.model.heads * config.model.random_features + config.model.channels
            edges = min(batch.edges[0], EDGES_AT_ONCE) if batch.edges else 0.0
            again = 6 * row * batch.nodes + 4 * row * min(batch.nodes, ROWS_AT_ONCE)
            kept, more = kept * item, (again + 5 * config.model.heads * edges) * item
        else:
            kept = (_input_numbers(config, graph, batch) + config.model.layers * layer.kept) * item
            more = layer.more * item
        least = (config.model.layers * state + layer.kept / 2) * item
    else:
        kept, more = (numbers * item for numbers in _baseline_numbers(config, graph, batch))
        least = kept / 2
    making = INDUCED_BYTES * max(batch.edges, default=0.0) + graph.row_bytes(item) * batch.nodes
    more = max(more, making - kept)
    return StepMemory(fixed, rows, kept, more, rows / 2 + least)


def batch_bytes(config: Config, graph: GraphCounts, batch: BatchCounts, item: int) -> float:
    """A batch on its device: features, as read and as the model takes them, and relations."""
    row = graph.row_bytes(item) + ROW_BYTES
    if graph.entries is None and graph.feature_bytes != item:
        row += graph.features * graph.feature_bytes  # the buffer they are read into
    if graph.entries is not None:
        row += graph.entries * (16 + item)  # the same entries by columns, for the gradient of the first weights
    small = EDGE_BYTES + (3 if graph.weighted else 2) * item
    edges = sum(count * (small if count < EDGES_AT_ONCE else LARGE_EDGE_BYTES) for count in batch.edges)
    relations = edges + (batch.nodes + batch.copies) * len(batch.edges) * (16 + 3 * INDEX_BYTES)
    if config.train.edge_loss and config.model.heads > 1 and batch.edges:
        relations += config.model.heads * batch.edges[0] * 16  # Adjacency.block_diagonal
    return row * batch.nodes + relations


@dataclass(frozen=True)
class LayerNumbers:
    """Numbers that a layer keeps for the backward pass, and that come beside them while it is the last one."""

    kept: float
    more: float


def _layer_numbers(config: Config, graph: GraphCounts, batch: BatchCounts) -> LayerNumbers:
    """A layer of NodeFormer; letters are those of the shapes."""
    model, attention = config.model, config.attention
    n, h, m, c = batch.nodes, model.heads, model.random_features, model.channels
    k = 1 if attention.kind == "softmax" else attention.noise_draws
    edges = min(batch.edges[0], EDGES_AT_ONCE) if batch.edges else 0.0  # more than that in pieces
    edge_loss = bool(config.train.edge_loss) and bool(batch.edges)
    row = 2 * h * m + h * (k + 2)  # log features of queries and keys, as attend and summarize keep them
    row += 2 * c + 2  # epilogue.add_norm: the sum and what is made of it
    if attention.epsilon:
        row += 4 * h * m + h * c
    if attention.kind == "softmax" or not few_are_heavy(round(n), attention.temperature, weights_dtype(config)):
        row += h * (2 * k + 2)  # the noise of every key
    if edge_loss:
        row += 2 * h * m  # edges.py: both gradients
    if model.feed_forward:
        row += (2 * model.feed_forward + 2) * c
    if model.jumping_knowledge:
        row += graph.outputs
    row += 2 * c * config.relation.num_partials
    kept = n * row + batch.copies * (c + (2 * h * m if edge_loss else 0))
    passing = 3 * h * m + 4 * c  # gradients on their way, or the edge loss at its height
    more = n * passing + (5 * h * edges + n * h * k if edge_loss else 0.0)
    return LayerNumbers(kept, more)


def _input_numbers(config: Config, graph: GraphCounts, batch: BatchCounts) -> float:
    """What comes before and after the layers: prepared features, the first state, a graph branch, logits and loss."""
    model = config.model
    row = _prepared(config, graph) + 2 * model.channels + 2 + graph.outputs
    if model.graph_layers:
        row += (model.graph_layers + 1) * (2 * model.channels + 2) + 2 * graph.outputs
    if config.train.label_inputs:
        row += 2 * model.channels
    return batch.nodes * row + 4 * graph.outputs * batch.labeled


def _prepared(config: Config, graph: GraphCounts) -> float:
    """Numbers of a row of features that InputLinear.prepare and gaps.fill_gaps make of it."""
    width = graph.features if graph.entries is None else graph.entries
    changed = config.model.standardize or config.model.input_dropout > 0
    copies = int(changed) if graph.entries is None else int(config.model.input_dropout > 0)
    return width * (copies + int(graph.gaps))


def _baseline_numbers(config: Config, graph: GraphCounts, batch: BatchCounts) -> tuple[float, float]:
    """What baselines keep, and what comes beside it; by their parts in baseline.py, not model by model."""
    model, n = config.model, batch.nodes
    hidden = max(0, model.layers - 1)
    state = model.channels * (2 + (model.norm == "layer") + (1.25 if model.dropout else 0))
    kept = n * (_prepared(config, graph) + hidden * state + graph.outputs) + 2 * graph.outputs * batch.labeled
    kept += model_class(model.name).pair_numbers(config, training=True) * n**2
    more = n * (3 * model.channels + graph.outputs) + (batch.edges[0] if batch.edges else 0.0)
    return kept, more
