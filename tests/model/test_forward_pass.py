"""Layers that are made again in the backward pass give what they give when all is kept: logits, losses, gradients."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import scipy.sparse
import torch
from torch import Tensor

from nfdist.graph.relation import Relation
from nfdist.model.nodeformer import NodeFormer
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.csr import as_tensor
from tests.comparing import difference
from tests.model.building import (
    GRAPH,
    LABEL_INPUTS,
    NODES,
    OPTIONS,
    OUTPUTS,
    build,
    given_labels,
    inputs,
)

GRAPHS = {"directed": GRAPH, "symmetric": replace(GRAPH.symmetrized(), symmetric=True)}


def some_at_a_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("nfdist.model.recomputed.ROWS_AT_ONCE", 7)
    patch.setattr("nfdist.sparse.adjacency.EDGES_AT_ONCE", 30)


def relations(net: NodeFormer, graph: Adjacency) -> list[Relation]:
    patterns = [replace(graph.power(hop), symmetric=graph.symmetric) for hop in range(1, net.relation.num_patterns + 1)]
    return [Relation.build(pattern, net.relation.normalize, torch.float64) for pattern in patterns]


def trained(net: NodeFormer, graph: Adjacency, features: Tensor, labels: Tensor | None) -> list[Tensor]:
    """Logits, the edge loss and the gradient of every parameter that has one."""
    draw = replace(inputs()[1], labels=labels)
    output = net(features, relations(net, graph), draw, auxiliary_scale=0.5 if net.relation.order else 0.0)
    weights = torch.randn(output.logits.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    edge_loss = output.logits.new_zeros(()) if output.auxiliary_loss is None else output.auxiliary_loss
    net.zero_grad()
    ((output.logits * weights).sum() + edge_loss).backward()
    gradients = [parameter.grad for parameter in net.parameters()]
    return [output.logits, edge_loss, *(gradient for gradient in gradients if gradient is not None)]


def assert_recomputed_alike(
    net: NodeFormer, graph: Adjacency, features: Tensor, labels: Tensor | None, patch: pytest.MonkeyPatch
) -> None:
    wanted = trained(net, graph, features, labels)
    some_at_a_time(patch)
    net.recompute = True
    found = trained(net, graph, features, labels)
    largest = max(float(one.abs().max()) for one in wanted[2:] if one.numel())
    for one, other in zip(found, wanted, strict=True):
        assert difference(one, other, 1e-2 * largest) < 1e-10


@pytest.mark.parametrize("shape", GRAPHS)
@pytest.mark.parametrize("options", OPTIONS)
def test_every_option(options: str, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = given_labels(NODES) if options in LABEL_INPUTS else None
    assert_recomputed_alike(build(options), GRAPHS[shape], inputs()[0], labels, monkeypatch)


def with_gaps(net: NodeFormer, features: Tensor) -> Tensor:
    net.feature_means = features.mean(0)
    return features.masked_fill(features > 1, torch.nan)


def sparse(net: NodeFormer, features: Tensor) -> Tensor:
    return as_tensor(scipy.sparse.csr_array((features * (features > 0.5)).numpy()))


@pytest.mark.parametrize("kind", [with_gaps, sparse])
def test_features_with_gaps_and_sparse_ones(
    kind: Callable[[NodeFormer, Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = build("dropout of features")
    assert_recomputed_alike(net, GRAPHS["symmetric"], kind(net, inputs()[0]), None, monkeypatch)


def test_answers_given_as_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    net, labels = build("label inputs of a graph branch"), given_labels(NODES, OUTPUTS)
    assert_recomputed_alike(net, GRAPHS["directed"], inputs()[0], labels, monkeypatch)


def test_little_is_kept() -> None:
    """Of every layer the states that it starts from, and no more: neither features of keys nor sums over edges."""
    net, kept = build("paper's large graphs"), []
    net.recompute = True

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    features, draw = inputs()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        net(features, relations(net, GRAPH), draw, auxiliary_scale=0.5)
    states = {tensor.data_ptr() for tensor in kept if tensor.shape == (NODES, net.model.channels)}
    assert len(states) <= net.model.layers + 1
    assert not [tensor for tensor in kept if tensor.numel() >= NODES and tensor.shape[1:] != (net.model.channels,)]
