"""DistributedStore: rows and edges of all nodes for ranks that hold only some of the parts each; the rest travels."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import TypeVar

import torch
from torch import Tensor

from nfdist.collectives import agree, exchange, fail_together, gather, least
from nfdist.errors import PartitionError, WorldError
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.csr import sparse_csr
from nfdist.store.arrow_files import integer_type
from nfdist.store.ranges import joined, offsets
from nfdist.store.store import Description, Store
from nfdist.world import World

Result = TypeVar("Result")


class DistributedStore(Description):
    """A store whose parts lie on several hosts. Every rank must make one, and each call together with the others.

    Ranks ask for their own nodes, or for none; a mistake of one is raised on all.
    """

    remote = True

    def __init__(self, store: Store, world: World) -> None:
        super().__init__(store.directory, store.manifest)
        self.local, self.world = store, world
        agree(world, {"a partition of checksum": self._together(store.fingerprint)})
        nobody = world.size
        owners = torch.full((len(store.parts),), nobody)
        owners[list(store.held_parts)] = world.rank
        self._owners = least(world, owners)
        missing = (self._owners == nobody).nonzero()[:, 0].tolist()
        if missing:
            raise WorldError(f"no rank holds part {missing[0]} of {store.directory}: copy it to one of the hosts")
        self._owners[list(store.held_parts)] = world.rank  # what is here need not travel
        self._starts = torch.tensor([part.start for part in store.parts])

    def take(self, node_ids: Tensor, out: Tensor | None = None) -> Tensor:
        """`Store.take`: requests travel in one all-to-all and rows come back in another."""
        if self.manifest.feature_kind == "dense":
            rows = self._dense_rows(self.local.take, node_ids)
            return rows if out is None else out.copy_(rows)
        asked, place = self._ask(*self._checked(node_ids))
        found = [self.local.take(ids) for ids in asked]
        values = torch.cat(exchange(self.world, [part.values() for part in found], "rows"))
        lengths = [part.crow_indices().diff().long() for part in found]
        indptr, columns, picked = self._compressed_rows(lengths, [part.col_indices().long() for part in found], place)
        return sparse_csr(indptr, columns, values[picked], (len(place), self.num_features))

    def labels(self, node_ids: Tensor) -> Tensor:
        """`Store.labels`."""
        return self._dense_rows(self.local.labels, node_ids)

    def split(self, node_ids: Tensor) -> Tensor:
        """`Store.split`."""
        return self._dense_rows(self.local.split, node_ids)

    def induced(
        self, node_ids: Tensor, sources: Tensor | None = None, *, loops: bool = False, weights: bool = False
    ) -> Adjacency:
        """`Store.induced`: every rank finds the edges to the nodes of its own parts, for all the others."""
        targets, batch = self._checked(node_ids, node_ids if sources is None else sources)
        asked, place = self._ask(targets)
        requests = list(zip(asked, gather(self.world, batch, "request"), strict=True))
        found = self._together(
            lambda: [self.local.induced(*request, loops=loops, weights=weights) for request in requests]
        )
        lengths = [part.in_degrees for part in found]
        indptr, positions, picked = self._compressed_rows(lengths, [part.sources.int() for part in found], place)
        sent = [part.weights for part in found if part.weights is not None]
        edge_weights = torch.cat(exchange(self.world, sent, "rows"))[picked] if weights else None
        dtype = getattr(torch, integer_type(max(len(targets), len(batch), len(positions))).__name__)
        columns = None if sources is None else len(batch)
        return Adjacency(indptr.to(dtype), positions.to(dtype), columns, edge_weights)

    def with_in_edges(self, in_edges: Sequence[Adjacency]) -> "DistributedStore":
        """`Store.with_in_edges`, for the parts held here: other ranks have those of theirs."""
        made = copy(self)
        made.local = self.local.with_in_edges(in_edges)
        return made

    def in_degrees(self, node_ids: Tensor) -> Tensor:
        """`Store.in_degrees`."""
        asked, place = self._ask(*self._checked(node_ids))
        found = self._together(lambda: [self.local.in_degrees(ids) for ids in asked])
        return torch.cat(exchange(self.world, found, "rows")).index_select(0, place)

    def in_neighbors(self, node_ids: Tensor) -> tuple[Tensor, Tensor]:
        """`Store.in_neighbors`."""
        asked, place = self._ask(*self._checked(node_ids))
        found = self._together(lambda: [self.local.in_neighbors(ids) for ids in asked])
        indptr, sources, _ = self._compressed_rows([counts for counts, _ in found], [some for _, some in found], place)
        return indptr.diff(), sources

    def _checked(self, *node_ids: Tensor) -> list[Tensor]:
        return self._together(lambda: [torch.from_numpy(self.checked(ids)) for ids in node_ids])

    def _ask(self, node_ids: Tensor) -> tuple[list[Tensor], Tensor]:
        """What every rank asks of this one, and where the rows this one asks for will be among the answers."""
        owners = self._owners[torch.searchsorted(self._starts, node_ids, right=True) - 1]
        order = torch.argsort(owners, stable=True)
        counts = torch.bincount(owners, minlength=self.world.size).tolist()
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        return exchange(self.world, list(torch.split(node_ids[order], counts)), "request"), place

    def _dense_rows(self, read: Callable[[Tensor], Tensor], node_ids: Tensor) -> Tensor:
        asked, place = self._ask(*self._checked(node_ids))
        return torch.cat(exchange(self.world, [read(ids) for ids in asked], "rows")).index_select(0, place)

    def _compressed_rows(
        self, lengths: list[Tensor], columns: list[Tensor], place: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Exchange compressed rows: offsets and columns in the order asked for, and where each of these came from."""
        arrived = torch.cat(exchange(self.world, lengths, "rows"))
        entries = torch.cat(exchange(self.world, columns, "rows"))
        starts, wanted = (arrived.cumsum(0) - arrived)[place].numpy(), arrived[place].numpy()
        picked = torch.from_numpy(joined(starts, wanted))
        return torch.from_numpy(offsets(wanted)), entries[picked], picked

    def _together(self, work: Callable[[], Result]) -> Result:
        """The result of something that may fail here, and then fails on every rank."""
        result, failure = None, None
        try:
            result = work()
        except PartitionError as error:
            failure = error
        fail_together(self.world, failure, PartitionError)
        assert result is not None
        return result
