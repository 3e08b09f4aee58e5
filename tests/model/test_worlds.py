"""Law (c): ranks that share attention and relations compute what one process computes with all their nodes.

Compared are the loss and every gradient of the first step, and every weight after three.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from nfdist import seeds
from nfdist.attention.kernel import Kernel
from nfdist.collectives import total
from nfdist.config import AttentionConfig, JoinHeads, ModelConfig, RelationConfig, RelationKind, Scope
from nfdist.graph.relation import Relation, build_world_relations
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw
from nfdist.model.task import Task
from nfdist.sparse.adjacency import Adjacency
from nfdist.world import World
from tests.model.building import jittered
from tests.model.reference import fed_forward, finish, joined, related, weighted
from tests.worlds import run_world

NODES, FEATURES, CLASSES = 40, 6, 4
MODEL = ModelConfig(layers=2, channels=8, heads=2, random_features=10, dropout=0.5)
ATTENTION = AttentionConfig(noise_draws=3)
TASK = Task("single", CLASSES)
# Which rank has which nodes, by the size of the world: uneven, one node alone, none at all.
DIVISIONS: dict[int, list[tuple[int, ...]]] = {1: [(40,)], 2: [(27, 13), (40, 0)], 3: [(20, 1, 19), (0, 33, 7)]}


class Case(NamedTuple):
    """The scopes of attention and of relations, and what else ranks must agree on."""

    attention: Scope
    relation: Scope
    order: int
    epsilon: float = 0.0
    feed_forward: int = 0
    kind: RelationKind = "pattern"
    join_heads: JoinHeads = "linear"


SCOPES: tuple[Scope, ...] = ("rank", "world")
CASES: list[Case] = [
    *itertools.starmap(Case, product(SCOPES, SCOPES, (1, 2))),
    Case("world", "world", 2, epsilon=1e-6),  # the peak of all keys must be shared as well
    Case("world", "rank", 0),
    Case("world", "world", 2, kind="power"),
    Case("world", "world", 3, feed_forward=2, kind="power", join_heads="mean"),
    Case("rank", "rank", 2, kind="power"),
]


# Layers that are made again, in `make test`: each kind of halo, a shared peak, no graph.
RECOMPUTED: list[Case] = [
    Case("world", "world", 2),
    Case("world", "world", 2, epsilon=1e-6),
    Case("world", "rank", 0),
    Case("rank", "rank", 2, kind="power"),
    Case("world", "world", 3, feed_forward=2, kind="power"),
]


def graph() -> Adjacency:
    ends = torch.randint(NODES, (2, 160), generator=seeds.generator(0, "graph"))
    return Adjacency.from_edges(ends[0], ends[1], NODES)


def dense(pattern: Adjacency) -> Tensor:
    matrix = torch.zeros(NODES, NODES, dtype=torch.bool)
    matrix[pattern.targets.long(), pattern.sources.long()] = True
    return matrix


def pattern_of(matrix: Tensor) -> Adjacency:
    """The rows of a matrix are targets; it need not be square."""
    indptr = torch.cat([torch.zeros(1, dtype=torch.long), matrix.sum(1).cumsum(0)])
    return Adjacency(indptr, matrix.nonzero()[:, 1], matrix.shape[1])


def build(case: Case) -> NodeFormer:
    net = NodeFormer(
        FEATURES,
        CLASSES,
        replace(MODEL, feed_forward=case.feed_forward, join_heads=case.join_heads),
        replace(ATTENTION, scope=case.attention, epsilon=case.epsilon),
        RelationConfig(order=case.order, kind=case.kind, scope=case.relation),
        seed=1,
    )
    return jittered(net)


def nodes() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, labels, which nodes have one, and ids that are not rows."""
    generator = seeds.generator(3, "nodes")
    features = torch.randn(NODES, FEATURES, generator=generator, dtype=torch.float64)
    labels = torch.randint(CLASSES, (NODES,), generator=generator)
    labeled = torch.rand(NODES, generator=generator) < 0.4
    return features, labels, labeled, torch.randperm(500, generator=generator)[:NODES]


def loss_of(
    net: NodeFormer, step: int, own: slice, relations: list[Relation], edges: int, labels: int, **world: object
) -> Tensor:
    """A rank's share of the loss: sums over its nodes and edges, divided by the counts of all."""
    features, classes, labeled, node_ids = nodes()
    scale = net.auxiliary_scale(0.7, edges) if relations else 0.0
    output = net(features[own], relations, Draw(5, step, node_ids[own]), auxiliary_scale=scale, **world)
    chosen = labeled[own]
    loss = TASK.loss(output.logits[chosen], classes[own][chosen]).total / labels
    return loss if output.auxiliary_loss is None else loss + output.auxiliary_loss


def slices(sizes: tuple[int, ...]) -> list[slice]:
    ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
    return [slice(start, stop) for start, stop in pairwise(ends)]


def patterns(relation: str, order: int, sizes: tuple[int, ...]) -> list[Tensor]:
    """Â_1 .. Â_order as matrices over all nodes: of the whole graph, or without the edges between ranks."""
    powers = [dense(graph().power(hop)) for hop in range(1, order + 1)]
    if relation == "world":
        return powers
    inside = torch.block_diag(*(torch.ones(size, size) for size in sizes)).bool()
    return [power & inside for power in powers]


def shared(world: World, case: Case, sizes: tuple[int, ...], recompute: bool = False) -> list[float]:
    """Loss and all gradients, added up over the ranks."""
    relation, order = case.relation, case.order
    net = build(case)
    net.recompute = recompute
    own = slices(sizes)[world.rank]
    matrices = patterns(relation, order, sizes)[: net.relation.num_patterns]
    halo = None
    if relation == "world" and order:
        mine = [pattern_of(matrix[own]) for matrix in matrices]
        relations, halo = build_world_relations(world, sizes, mine, True, torch.float64)
    else:
        relations = relations_of([matrix[own, own] for matrix in matrices])
    edges = int(matrices[0].sum()) if order else 0
    labels = int(nodes()[2].sum())
    return train(net, world, lambda step: loss_of(net, step, own, relations, edges, labels, world=world, halo=halo))


def train(net: NodeFormer, world: World, loss_at: Callable[[int], Tensor]) -> list[float]:
    """Loss and gradients of the first step and the weights after three, of losses that the ranks add up."""
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    first: list[float] = []
    for step in range(3):
        loss = loss_at(step)
        optimizer.zero_grad()
        loss.backward()
        for parameter in net.parameters():
            if parameter.grad is not None:
                parameter.grad = total(world, parameter.grad)
        if step == 0:
            gradients = [parameter.grad.flatten() for parameter in net.parameters() if parameter.grad is not None]
            first = torch.cat([total(world, loss.detach())[None], *gradients]).tolist()
        optimizer.step()
    return first + torch.cat([parameter.detach().flatten() for parameter in net.parameters()]).tolist()


def relations_of(matrices: list[Tensor]) -> list[Relation]:
    return [Relation.build(pattern_of(matrix), dtype=torch.float64) for matrix in matrices]


def alone(case: Case, sizes: tuple[int, ...]) -> list[float]:
    net = build(case)
    return train(net, World(), lambda step: dense_loss(net, step, case, sizes))


def dense_loss(net: NodeFormer, step: int, case: Case, sizes: tuple[int, ...]) -> Tensor:
    """One process with all nodes and dense matrices: who hears whom is a mask."""
    attention, relation, order = case.attention, case.relation, case.order
    features, classes, labeled, node_ids = nodes()
    blocks = torch.block_diag(*(torch.ones(size, size) for size in sizes)).bool()
    heard = blocks if attention == "rank" else torch.ones(NODES, NODES, dtype=torch.bool)
    matrices = patterns(relation, order, sizes)
    draw = Draw(5, step, node_ids)
    hidden = finish(net, net.input(features), 0, draw, True)
    likelihood = torch.zeros((), dtype=torch.float64)
    for index in range(1, MODEL.layers + 1):
        layer, (kernel, noise) = net.layer(index), net.randomness(draw, index, features)
        assert noise is not None
        queries, keys, values = (part(hidden).view(NODES, 2, -1) for part in (layer.query, layer.key, layer.value))
        logs = dense_log_products(kernel, queries, keys)  # [t, s, h]
        logs = logs.masked_fill(~heard[:, :, None], -torch.inf)
        noisy = (logs[..., None] + noise / kernel.temperature).softmax(1)  # [t, s, h, k]
        out = torch.einsum("tshk,shd->thd", noisy, values) / noise.shape[2]
        for hop, matrix in enumerate(matrices):
            gate = layer.gates[hop].sigmoid()[:, None]
            one_step = related(matrices[0].double(), hop + 1, net.relation)
            relation_matrix = one_step if case.kind == "power" else weighted(matrix.double(), True)
            out = out + gate * torch.einsum("ts,shd->thd", relation_matrix, values)
        if order:
            edge_logs = dense_log_products(kernel, queries, keys) - logs.logsumexp(1)[:, None]
            edges = matrices[0].double()
            likelihood = likelihood + (edge_logs * (edges / edges.sum(1, keepdim=True))[:, :, None]).sum()
        hidden = finish(net, joined(layer, out) + hidden, index, draw, False)
        hidden = fed_forward(net, hidden, index, draw)
    loss = TASK.loss(net.output(hidden)[labeled], classes[labeled]).mean
    if order:
        loss = loss + net.auxiliary_scale(0.7, int(matrices[0].sum())) * likelihood
    return loss


def dense_log_products(kernel: Kernel, queries: Tensor, keys: Tensor) -> Tensor:
    """log phi(q_t).phi(k_s), [t, s, h], with epsilon as published."""
    key_features = kernel.key_features(keys)
    logs = key_features.logs
    if kernel.epsilon > 0:
        assert key_features.peak is not None
        logs = kernel.add_epsilon(logs, key_features.peak[:, None])
    return (kernel.query_features(queries)[:, None] + logs[None]).logsumexp(3)


def kept(world: World, cases: list[Case]) -> dict[str, list[float]]:
    return {f"{case} {sizes}": shared(world, case, sizes) for sizes in DIVISIONS[world.size] for case in cases}


def recomputed(world: World, cases: list[Case]) -> dict[str, list[float]]:
    """Some rows and some edges at a time, in a backward pass in which ranks meet again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nfdist.sparse.adjacency.EDGES_AT_ONCE", 30)
        patch.setattr("nfdist.model.recomputed.ROWS_AT_ONCE", 7)
        return {
            f"{case} {sizes}": shared(world, case, sizes, True) for sizes in DIVISIONS[world.size] for case in cases
        }


@pytest.mark.parametrize(
    ("layers", "cases", "size"),
    [
        *(pytest.param(kept, CASES, size, id=f"kept-{size}") for size in (1, 2, 3)),
        *(pytest.param(recomputed, RECOMPUTED, size, id=f"recomputed-{size}") for size in (1, 2)),
        *(
            pytest.param(recomputed, CASES, size, marks=pytest.mark.slow, id=f"every case recomputed-{size}")
            for size in (1, 2, 3)
        ),
    ],
)
def test_a_world_computes_what_one_process_computes(
    layers: Callable[[World, list[Case]], dict[str, list[float]]], cases: list[Case], size: int
) -> None:
    ranks = run_world(size, layers, cases)
    for sizes in DIVISIONS[size]:
        for case in cases:
            wanted = torch.tensor(alone(case, sizes), dtype=torch.float64)
            for rank in ranks:
                found = torch.tensor(rank[f"{case} {sizes}"], dtype=torch.float64)
                assert float((found - wanted).abs().max() / wanted.abs().max()) < 1e-9, (case, sizes)
