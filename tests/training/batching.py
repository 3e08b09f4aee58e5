"""Batches of a small graph, and what makes two of them the same."""

import torch

from nfdist.config import RelationConfig
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.training.batches import Assembler, Batch
from nfdist.training.sampling import Pools
from nfdist.world import World


def assembler_of(store: Store, order: int = 1, kind: type[Assembler] = Assembler) -> Assembler:
    split = store.split(torch.arange(store.num_nodes))
    return kind(store, Hops.open(store, order), RelationConfig(order=order), split, World())


def pools_of(store: Store) -> Pools:
    return Pools([torch.arange(store.num_nodes)], None, 1, 50, seed=3)


def assert_equal(left: Batch, right: Batch) -> None:
    assert left.after == right.after
    for name in ("node_ids", "labeled", "labels"):
        assert torch.equal(getattr(left, name), getattr(right, name)), name
    # With every value, since torch compares no sparse rows.
    assert torch.equal(left.features.to_dense(), right.features.to_dense())
    for one, other in zip(left.relations, right.relations, strict=True):
        assert torch.equal(one.adjacency.indptr, other.adjacency.indptr)
        assert torch.equal(one.adjacency.sources, other.adjacency.sources)
        assert torch.equal(one.adjacency.transposed[1], other.adjacency.transposed[1])
        assert torch.equal(one.edge_weights, other.edge_weights)
