"""What a rank sends in a training step, from counts: as `World.watch` counts it."""

from nfdist.config import Config
from nfdist.graph.counts import GraphCounts
from nfdist.model.build import count_weights, model_class, weights_dtype
from nfdist.training.batch_counts import BatchCounts

MEETING_BYTES = 56  # what all ranks bring to a batch, and their losses
POSITION_BYTES = 8  # of a row that another rank is asked for


def step_traffic(config: Config, graph: GraphCounts, batch: BatchCounts, ranks: int) -> float:
    """Bytes that a rank sends in a step: gradients, summaries, and rows of its halo, forward and backward."""
    if ranks == 1:
        return 0.0
    item = weights_dtype(config).itemsize
    sent: float = MEETING_BYTES + item * count_weights(config, graph.features, graph.outputs, graph.nodes)
    if not model_class(config.model.name).sweeps:
        return sent * config.train.accumulate
    model = config.model
    if config.attention.scope == "world":
        sent += model.layers * summary_bytes(config, item)
    passes = model.layers * (1 + config.relation.num_partials) + model.graph_layers
    sent += passes * 2 * batch.copies * model.channels * item
    if config.train.batch_nodes and batch.copies:  # a new halo for every batch: requests, and degrees both ways
        sent += batch.copies * POSITION_BYTES * (1 + 2 * len(batch.edges))
    return sent


def summary_bytes(config: Config, item: int, *, training: bool = True) -> int:
    """Of the merge of one layer's summaries (attention/all_reduce.py)."""
    model, attention = config.model, config.attention
    draws = attention.noise_draws if training and attention.kind == "gumbel" else 1
    masses = model.heads * model.random_features * (draws + 1)
    sums = masses + model.heads * model.random_features * draws * model.channels
    return item * (masses + (2 if training else 1) * sums)
