"""Rows of features that stay on a device: batches take them from there, and only the others are read and copied."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nfdist import log
from nfdist.collectives import least
from nfdist.config import Config
from nfdist.devices import memory_use
from nfdist.memory import parse_bytes
from nfdist.store.store import GraphStore
from nfdist.world import World

NODES_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class RowCache:
    """The features [k, f] of the first k nodes, on a device; batches are uniform, so any nodes would do."""

    rows: Tensor

    def count(self, node_ids: Tensor) -> int:
        """How many of ascending node ids are here: they are the first of these."""
        return int(torch.searchsorted(node_ids, len(self.rows)))

    def joined(self, node_ids: Tensor, others: Tensor) -> Tensor:
        """The features [n, f] of nodes on the device, given those of the last of them, which are not here."""
        own = self.rows.index_select(0, node_ids[: len(node_ids) - len(others)])
        return torch.cat([own, others])


def make_row_cache(
    config: Config, store: GraphStore, device: torch.device, world: World, dtype: torch.dtype
) -> RowCache | None:
    """The cache that a configuration asks for; None if it does not, or where none can be. Every rank must call this."""
    if config.data.cache == "none":
        return None
    use, sparse = memory_use(device), store.manifest.feature_kind == "sparse"
    if use is None or sparse or config.train.batch_nodes == 0:
        why = "on the CPU" if use is None else "for sparse features" if sparse else "for batches of the whole graph"
        if world.rank == 0:
            log.notice(f"data.cache = device does nothing {why}")
        return None
    given = config.data.cache_memory
    budget = parse_bytes("data.cache_memory", given) if given else (use.limit - use.now) // 2
    room = min(store.num_nodes, budget // (store.num_features * dtype.itemsize))
    count = int(least(world, torch.tensor(room), "row cache"))
    rows = torch.empty(count, store.num_features, dtype=dtype, device=device)
    for start in range(0, count, NODES_AT_ONCE):
        nodes = torch.arange(start, min(start + NODES_AT_ONCE, count))
        rows[start : start + len(nodes)] = store.take(nodes).to(dtype)
    return RowCache(rows)
