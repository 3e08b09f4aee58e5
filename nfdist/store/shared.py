"""SharedStore: rows of all nodes for a rank that holds only some of the parts; the others' come from their ranks."""

import torch
from torch import Tensor

from nfdist.collectives import exchange, least
from nfdist.errors import WorldError
from nfdist.store.rows import sparse_csr
from nfdist.store.store import Store
from nfdist.world import World


class SharedStore:
    """A store whose parts lie on several hosts. Every rank must make one, and call `take` together with the others."""

    def __init__(self, store: Store, world: World) -> None:
        self.store, self.world = store, world
        nobody = world.size
        owners = torch.full((len(store.parts),), nobody)
        owners[list(store.held_parts)] = world.rank
        self._owners = least(world, owners)
        missing = (self._owners == nobody).nonzero()[:, 0].tolist()
        if missing:
            raise WorldError(f"no rank holds part {missing[0]} of {store.directory}: copy it to one of the hosts")
        self._owners[list(store.held_parts)] = world.rank  # what is here need not travel
        self._starts = torch.tensor([part.start for part in store.parts])

    def take(self, node_ids: Tensor) -> Tensor:
        """Features of any nodes: requests travel in one all-to-all and rows come back in another.

        Every rank must call this, with its own nodes or none.
        """
        node_ids = node_ids.long()
        self._check(node_ids)
        owners = self._owners[torch.searchsorted(self._starts, node_ids, right=True) - 1]
        order = torch.argsort(owners, stable=True)
        counts = torch.bincount(owners, minlength=self.world.size).tolist()
        asked = exchange(self.world, list(torch.split(node_ids[order], counts)))
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        rows = [self.store.take(ids) for ids in asked]
        if self.store.manifest.feature_kind == "dense":
            return torch.cat(exchange(self.world, rows)).index_select(0, place)
        return _sparse_rows(self.world, rows, place, self.store.num_features)

    def _check(self, node_ids: Tensor) -> None:
        """Fail on every rank when the node ids of any rank are out of range."""
        outside = node_ids[(node_ids < 0) | (node_ids >= self.store.num_nodes)]
        everywhere = least(self.world, torch.tensor(-len(outside)))
        if everywhere < 0:
            culprit = f"node id {int(outside[0])}" if len(outside) else "a node id of another rank"
            raise WorldError(f"{culprit} is outside the {self.store.num_nodes} nodes of {self.store.directory}")


def _sparse_rows(world: World, rows: list[Tensor], place: Tensor, num_features: int) -> Tensor:
    """Exchange sparse rows by their lengths, column numbers and values, and put them in the order asked for."""
    lengths = torch.cat(exchange(world, [part.crow_indices().diff().long() for part in rows]))
    columns = torch.cat(exchange(world, [part.col_indices().long() for part in rows]))
    values = torch.cat(exchange(world, [part.values() for part in rows]))
    starts = lengths.cumsum(0) - lengths
    wanted = lengths[place]
    offsets = torch.cat([wanted.new_zeros(1), wanted.cumsum(0)])
    within = torch.arange(int(offsets[-1])) - offsets[:-1].repeat_interleave(wanted)
    picked = starts[place].repeat_interleave(wanted) + within
    return sparse_csr(offsets, columns[picked], values[picked], (len(place), num_features))
