"""Learned links equal the dense attention weights: those of every input edge, and the largest of chosen nodes."""

from itertools import product
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from nfdist.attention.dense import dense_log_weights
from nfdist.model.protocol import Draw
from nfdist.store.store import Store
from tests.evaluation.conftest import PARTS, SIZES, WRITTEN_KINDS
from tests.evaluation.trained import CHOSEN, SEED, WRITTEN
from tests.model.reference import adjacency_matrix, finish, joined, related

CASES = list(product(WRITTEN_KINDS, PARTS, SIZES))


def dense_weights(store: Store, kind: str) -> Tensor:
    """Attention weights [layers, nodes, nodes], the query's row first, averaged over the heads."""
    model, everyone = WRITTEN[kind].build(store.num_features), torch.arange(store.num_nodes)
    draw = Draw(SEED, 0, everyone)
    step = adjacency_matrix(store.induced(everyone), torch.float64)
    hidden, found = finish(model, model.input(store.take(everyone).double()), 0, draw, True), []
    for index in range(1, model.model.layers + 1):
        layer = model.layer(index)
        kernel, _ = model.randomness(draw, index, hidden)
        shape = (store.num_nodes, model.model.heads, model.model.channels)
        queries, keys, values = (part(hidden).view(shape) for part in (layer.query, layer.key, layer.value))
        weights = dense_log_weights(queries, keys, kernel)[:, 0].exp()
        found.append(weights.mean(0))
        heard = torch.einsum("huv,vhc->uhc", weights, values)
        for hop in range(model.relation.order):
            relation = related(step, hop + 1, model.relation)
            heard = heard + layer.gates[hop].sigmoid()[:, None] * torch.einsum("ts,shd->thd", relation, values)
        hidden = finish(model, joined(layer, heard) + hidden, index, draw, False)
    return torch.stack(found).detach()


@pytest.mark.parametrize(("kind", "parts", "size"), CASES)
def test_every_input_edge_has_its_dense_weight(kind: str, parts: int, size: int, written: Path) -> None:
    store = Store.open(written / f"{kind} {parts}")
    table = pq.read_table(written / f"{kind} {parts} by {size}" / "edges.parquet").to_pydict()
    sources, targets = store.node_ids(table["source"]), store.node_ids(table["target"])
    graph = store.induced(torch.arange(store.num_nodes))
    assert torch.equal(targets, graph.targets.long())
    assert torch.equal(sources, graph.sources.long())
    wanted = dense_weights(store, kind)[:, targets, sources].t()
    assert ((torch.tensor(table["weights"]) - wanted).abs() < 1e-6 * wanted.max() + 1e-5 * wanted).all()


@pytest.mark.parametrize(("kind", "parts", "size"), CASES)
def test_the_strongest_links_are_those_of_a_dense_sort(kind: str, parts: int, size: int, written: Path) -> None:
    store = Store.open(written / f"{kind} {parts}")
    table = pq.read_table(written / f"{kind} {parts} by {size}" / "neighbors.parquet").to_pydict()
    assert table["id"] == [name for name in CHOSEN.tolist() for _ in range(2)]
    assert table["layer"] == [1, 2] * len(CHOSEN)
    chosen = store.node_ids(CHOSEN)
    weights, neighbors = dense_weights(store, kind)[:, chosen].sort(2, descending=True)
    for row, (node, layer) in enumerate(product(range(len(CHOSEN)), range(2))):
        assert table["neighbors"][row] == store.original_ids(neighbors[layer, node, :5]).tolist()
        assert torch.allclose(torch.tensor(table["weights"][row]).double(), weights[layer, node, :5], rtol=1e-5)
