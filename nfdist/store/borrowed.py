"""Borrowed: in-edges of nodes in parts that lie on other hosts, brought here a bounded number at a time."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nfdist.collectives import largest, together
from nfdist.errors import PartitionError
from nfdist.scratch import Scratch
from nfdist.store.distributed import DistributedStore
from nfdist.store.ranges import Integers, pieces

NODES_AT_ONCE = 1 << 18
EDGES_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Borrowed:
    """sources[starts[i] : starts[i + 1]] are those of node_ids[i], which ascend; at first there are no sources."""

    node_ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    sources: NDArray[Any]

    @staticmethod
    def degrees_of(store: DistributedStore, node_ids: NDArray[np.int64], scratch: Scratch) -> "Borrowed":
        """How many in-edges some nodes have. Every rank must call this, for nodes of its own choice."""
        starts = together(store.world, lambda: scratch.array(len(node_ids) + 1, np.int64), PartitionError)
        for piece in _rounds(store, [slice(at, at + NODES_AT_ONCE) for at in range(0, len(node_ids), NODES_AT_ONCE)]):
            some = torch.from_numpy(node_ids[piece])
            starts[piece.start + 1 : piece.start + 1 + len(some)] = store.in_degrees(some).numpy()
        np.cumsum(starts, out=starts)
        return Borrowed(node_ids, starts, np.empty(0, store.manifest.index_type))

    def filled(self, store: DistributedStore, scratch: Scratch) -> "Borrowed":
        """The same with sources. Every rank must call this."""
        sources = together(
            store.world, lambda: scratch.array(int(self.starts[-1]), store.manifest.index_type), PartitionError
        )
        for piece in _rounds(store, list(pieces(np.diff(self.starts), EDGES_AT_ONCE))):
            arrived = store.in_neighbors(torch.from_numpy(self.node_ids[piece]))[1]
            first = int(self.starts[piece.start])
            sources[first : first + len(arrived)] = arrived.numpy()
        return Borrowed(self.node_ids, self.starts, sources)

    def in_edges_of(self, nodes: Integers) -> tuple[Integers, Integers, NDArray[Any]]:
        """Where the sources of each node begin, how many there are, and sources."""
        places = np.searchsorted(self.node_ids, nodes)
        starts = self.starts[places]
        return starts, self.starts[places + 1] - starts, self.sources


def _rounds(store: DistributedStore, own: list[slice]) -> list[slice]:
    """As many pieces as any rank has: those who have fewer ask for nothing in the end."""
    most = int(largest(store.world, torch.tensor(len(own)), "request"))
    return own + [slice(0, 0)] * (most - len(own))
