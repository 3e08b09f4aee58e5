"""Hops: who reaches whom in at most j steps on the whole graph, for each j up to an order, induced on batches.

Orders from 2 on are computed once and kept beside the partition, part by part, in the form of its own in-edges. A host
keeps those of the parts it holds.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from nfdist.collectives import total
from nfdist.errors import PartitionError
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.distributed import DistributedStore
from nfdist.store.hop_building import HopBuilding, Limits
from nfdist.store.kept_hops import KeptHop
from nfdist.store.paths import FirstHop, KnownHop, Reached
from nfdist.store.store import GraphStore
from nfdist.world import World


class Hops:
    """The patterns of (A + I)^j on the whole graph: hop 1 is that of a store, `higher` ones are stores of their own.

    `patterns` are the in-edges of the parts held here, of every higher hop.
    """

    def __init__(self, store: GraphStore, patterns: Sequence[Sequence[Adjacency]], weighted: bool = False) -> None:
        self.order, self.weighted = len(patterns) + 1, weighted
        self._store, self.patterns = store, patterns
        self.higher = [store.with_in_edges(pattern) for pattern in patterns]

    @staticmethod
    def open(
        store: GraphStore, order: int, weighted: bool = False, *, limits: Limits | None = None, builds: bool = True
    ) -> "Hops":
        """Map the patterns up to an order, after building those that are not kept yet, within the limits of this host.

        In a `weighted` graph the edges of hop 1 have their weights, those of higher ones none. Every rank of a remote
        store must call this; those that do not build use what others of their host have built.
        """
        if weighted and not store.manifest.weighted:
            raise PartitionError(
                f"relation.weights = true needs edge weights, and {store.directory} has none: partition edges with a "
                "column named weight, or set relation.weights=false"
            )
        if order < 2:
            return Hops(store, [], weighted)
        local = store.local
        if not store.remote and len(local.held_parts) < len(store.parts):
            raise PartitionError(
                f"relation.order {order} needs all parts of {store.directory}, or other ranks that have the rest: "
                "copy them or use relation.order=1 or relation.kind=power"
            )
        fingerprint, patterns = store.fingerprint(), list[list[Adjacency]]()
        reached: dict[int, Reached] = {number: FirstHop(local, number) for number in local.held_parts}
        for hop in range(2, order + 1):
            kept = KeptHop.beside(local, hop, fingerprint)
            patterns.append(_obtained(store, kept, order, reached, limits or Limits(), builds))
            reached = {number: KnownHop(one) for number, one in zip(local.held_parts, patterns[-1], strict=True)}
        return Hops(store, patterns, weighted)

    @property
    def num_paths(self) -> int:
        """Edges of all higher patterns that are here."""
        return sum(part.num_edges for pattern in self.patterns for part in pattern)

    def of(self, store: GraphStore) -> "Hops":
        """The same patterns through another store of the same parts."""
        return Hops(store, self.patterns, self.weighted)

    def induced(self, hop: int, node_ids: Tensor, sources: Tensor | None = None) -> Adjacency:
        """What `Store.induced` does, for paths of at most `hop` steps through any nodes of the graph."""
        assert 1 <= hop <= self.order
        if hop == 1:
            return self._store.induced(node_ids, sources, loops=True, weights=self.weighted)
        return self.higher[hop - 2].induced(node_ids, sources)


def _obtained(
    store: GraphStore, kept: KeptHop, order: int, reached: Mapping[int, Reached], limits: Limits, builds: bool
) -> list[Adjacency]:
    """A hop as it is kept, or built: by those who build first, then by those who do not find it kept after that."""
    world = store.world if isinstance(store, DistributedStore) else World()
    found: list[Adjacency] | None = None
    for in_turn in (builds, True):
        if found is None and in_turn:
            found = kept.read()
        lacking = found is None and in_turn
        if lacking:
            kept.discard()
        if int(total(world, torch.tensor(int(lacking)))):
            built = HopBuilding(store, kept, order, reached if lacking else {}, limits).build()
            found = built if lacking else found
    assert found is not None
    return found
