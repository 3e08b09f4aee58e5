"""Whether a training makes layers again in the backward pass: docs/numerics.md#recomputed-layers."""

from nfdist.config import TrainConfig

KEPT_NODES = 1 << 18  # of a rank: some 1 GiB of layers, while batches of 100,000 nodes stay well below


def recomputes(config: TrainConfig, num_nodes: int, ranks: int) -> bool:
    """The same on every rank and host, since ranks meet in a layer, and however much memory there is: sums differ."""
    if config.recompute == "auto":
        return config.batch_nodes == 0 and num_nodes > KEPT_NODES * ranks
    return config.recompute == "always"
