"""What a sample of nodes attends to, layer by layer: how widely, along which edges, and within which class."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdist.reporting.latent import LatentAttention, pair_weights
from nfdist.store.store import Store

KEYS_AT_ONCE = 1 << 13
MOST_KEYS = 1 << 20
TOP = 10


@dataclass(frozen=True)
class Attended:
    """The strongest keys [q, k] of some nodes in a layer by node id, not the node itself, and their weights."""

    node_ids: NDArray[np.int64]
    weights: NDArray[np.float64]


@dataclass(frozen=True)
class LayerAttention:
    """What the sample attends to in a layer. Shares are of attention weight, each beside what chance would give.

    `entropy` [q] is in nats, averaged over the heads; `same_class` is None where nodes have no single label.
    `top_on_edges` and `top_same_class` are shares of the strongest keys, `distinct_top` counts different nodes among
    the `num_top` of these.
    """

    layer: int
    entropy: NDArray[np.float64]
    head_entropy: tuple[float, ...]
    on_itself: float
    on_edges: float
    edge_chance: float
    same_class: float | None
    class_chance: float | None
    top_on_edges: float
    top_same_class: float | None
    distinct_top: int
    num_top: int
    attended: Attended


@dataclass(frozen=True)
class Structure:
    """`sample` are the node ids behind the numbers; with `sampled_keys` entropies are estimated from so many keys."""

    sample: NDArray[np.int64]
    num_nodes: int
    layers: tuple[LayerAttention, ...]
    sampled_keys: int | None


def drawn(num_nodes: int, count: int, *purpose: int) -> NDArray[np.int64]:
    """Some nodes, the same at every time, ascending."""
    stream = np.random.default_rng([0, *purpose])
    return np.sort(stream.choice(num_nodes, min(count, num_nodes), replace=False)).astype(np.int64)


def study_structure(
    latent: LatentAttention,
    store: Store,
    sample: NDArray[np.int64],
    others: NDArray[np.int64],
    most_keys: int = MOST_KEYS,
) -> Structure:
    """Look at what a sample of nodes, and for its strongest keys at what some others, attend to."""
    keys = None if store.num_nodes <= most_keys else drawn(store.num_nodes, most_keys, 1)
    queries = np.concatenate([sample, others])
    neighbors = in_neighbors(store, sample)
    labels = _single_labels(store, queries)
    layers = tuple(
        _look(latent, layer, store, queries, len(sample), neighbors, labels, keys) for layer in latent.layers
    )
    return Structure(sample, store.num_nodes, layers, None if keys is None else len(keys))


def in_neighbors(store: Store, node_ids: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Whom each node hears in the input graph, without itself."""
    found: list[NDArray[np.int64]] = [np.empty(0, np.int64)] * len(node_ids)
    for number, part in enumerate(store.parts):
        places = np.flatnonzero((node_ids >= part.start) & (node_ids < part.stop))
        starts, counts, sources = store.in_edges_of(number, node_ids[places] - part.start)
        for place, start, count in zip(places.tolist(), starts.tolist(), counts.tolist(), strict=True):
            heard = sources[start : start + count].astype(np.int64)
            found[place] = heard[heard != node_ids[place]]
    return found


@dataclass
class _Sums:
    """What is added up over the keys for each query."""

    entropy: Tensor  # [h, q]
    same_class: Tensor  # [q]
    labeled: Tensor  # [q]
    counts: Tensor  # [classes]
    best: tuple[Tensor, Tensor]  # weights and node ids [q, k]


def _look(
    latent: LatentAttention,
    layer: int,
    store: Store,
    queries: NDArray[np.int64],
    num_sample: int,
    neighbors: Sequence[NDArray[np.int64]],
    labels: Tensor | None,
    keys: NDArray[np.int64] | None,
) -> LayerAttention:
    shares = latent.queries(layer, queries)
    sums = _summed(latent, layer, store, queries, shares, labels, keys)
    scale = 1.0 if keys is None else store.num_nodes / len(keys)
    entropy = sums.entropy[:, :num_sample].double() * scale
    node_ids = sums.best[1][:num_sample]
    on_edges = [
        float(pair_weights(shares[row : row + 1], latent.keys(layer, heard)).mean(0).sum()) if len(heard) else 0.0
        for row, heard in enumerate(neighbors)
    ]
    itself = (shares[:num_sample] * latent.keys(layer, queries[:num_sample])).sum(2).mean(1)
    of_edges = [np.isin(ids.numpy(), heard) for ids, heard in zip(node_ids, neighbors, strict=True)]
    degrees = [len(heard) for heard in neighbors]
    same, chance, top_same = _class_shares(store, sums, labels, num_sample)
    return LayerAttention(
        layer=layer,
        entropy=entropy.mean(0).numpy(),
        head_entropy=tuple(entropy.mean(1).tolist()),
        on_itself=float(itself.mean()),
        on_edges=float(np.mean(on_edges)),
        edge_chance=float(np.mean(degrees)) / store.num_nodes,
        same_class=same,
        class_chance=chance,
        top_on_edges=float(np.mean(of_edges)) if node_ids.numel() else 0.0,
        top_same_class=top_same,
        distinct_top=len(node_ids.unique()),
        num_top=node_ids.numel(),
        attended=Attended(sums.best[1].numpy(), sums.best[0].double().numpy()),
    )


def _summed(
    latent: LatentAttention,
    layer: int,
    store: Store,
    queries: NDArray[np.int64],
    shares: Tensor,
    labels: Tensor | None,
    keys: NDArray[np.int64] | None,
) -> _Sums:
    count, heads = len(queries), shares.shape[1]
    nobody = shares.new_empty(count, 0), torch.empty(count, 0, dtype=torch.int64)
    none = shares.new_zeros(count)
    sums = _Sums(shares.new_zeros(heads, count), none, none.clone(), shares.new_zeros(store.num_classes), nobody)
    own = torch.from_numpy(queries)
    for node_ids in _pieces(store.num_nodes, keys):
        per_head = pair_weights(shares, latent.keys(layer, node_ids))
        sums.entropy -= torch.xlogy(per_head, per_head).sum(2)
        weights, ids = per_head.mean(0), torch.from_numpy(node_ids)
        if labels is not None:
            theirs = store.labels(ids)
            known = theirs >= 0
            sums.labeled += weights[:, known].sum(1)
            sums.same_class += weights.where((theirs == labels[:, None]) & known, 0).sum(1)
            sums.counts += torch.bincount(theirs[known], minlength=store.num_classes)
        weights = weights.masked_fill(ids == own[:, None], -1.0)  # a node is not among its own strongest keys
        kept, places = weights.topk(min(TOP, weights.shape[1]), 1)
        best = torch.cat([sums.best[0], kept], 1), torch.cat([sums.best[1], ids[places]], 1)
        order = best[0].sort(dim=1, descending=True, stable=True).indices[:, :TOP]
        sums.best = best[0].gather(1, order), best[1].gather(1, order)
    if store.num_nodes <= TOP:  # then the node itself is the last of them
        sums.best = sums.best[0][:, :-1], sums.best[1][:, :-1]
    return sums


def _pieces(num_nodes: int, keys: NDArray[np.int64] | None) -> Iterator[NDArray[np.int64]]:
    count = num_nodes if keys is None else len(keys)
    for start in range(0, count, KEYS_AT_ONCE):
        stop = min(start + KEYS_AT_ONCE, count)
        yield np.arange(start, stop) if keys is None else keys[start:stop]


def _class_shares(
    store: Store, sums: _Sums, labels: Tensor | None, num_sample: int
) -> tuple[float | None, float | None, float | None]:
    """Of the weight on labeled nodes and of the strongest labeled keys, how much is of a node's own class; chance."""
    if labels is None or not sums.counts.sum():
        return None, None, None
    mine = labels[:num_sample]
    known = mine >= 0
    if not known.any():
        return None, None, None
    share = (sums.same_class[:num_sample] / sums.labeled[:num_sample].clamp(min=1e-30))[known]
    chance = (sums.counts / sums.counts.sum())[mine[known]]
    top = sums.best[1][:num_sample][known]
    theirs = store.labels(top.flatten()).view(top.shape)
    of_class = ((theirs == mine[known][:, None]) & (theirs >= 0)).sum() / (theirs >= 0).sum().clamp(min=1)
    return float(share.mean()), float(chance.mean()), float(of_class)


def _single_labels(store: Store, node_ids: NDArray[np.int64]) -> Tensor | None:
    return None if store.manifest.label_shape else store.labels(torch.from_numpy(node_ids))
