"""What a sample attends to is what sums over the dense weights say."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from nfdist.evaluation.states import States
from nfdist.model.loading import load_model
from nfdist.reporting.latent import LatentAttention, pair_weights
from nfdist.reporting.structure import TOP, drawn, in_neighbors, study_structure
from nfdist.store.store import Store
from tests.reporting.explained import Explained

SAMPLE, OTHERS = np.array([2, 30, 77, 149]), np.array([5])


@pytest.fixture(scope="module")
def latent(explained: Explained) -> LatentAttention:
    trained = load_model(explained.path)
    return LatentAttention(trained, States.open(explained.path, trained), Store.open(explained.graph))


def test_numbers_are_those_of_the_dense_weights(latent: LatentAttention, explained: Explained) -> None:
    store = Store.open(explained.graph)
    everyone = np.arange(store.num_nodes)
    labels = store.labels(torch.from_numpy(everyone)).numpy()
    found = study_structure(latent, store, SAMPLE, OTHERS)
    assert found.sampled_keys is None
    for one in found.layers:
        heads = pair_weights(latent.queries(one.layer, everyone), latent.keys(one.layer, everyone)).double().numpy()
        entropy = -(heads * np.log(heads)).sum(2)[:, SAMPLE]
        assert one.entropy == pytest.approx(entropy.mean(0), rel=1e-4)
        assert one.head_entropy == pytest.approx(entropy.mean(1), rel=1e-4)
        weights = heads.mean(0)
        assert one.on_itself == pytest.approx(weights[SAMPLE, SAMPLE].mean(), rel=1e-4)
        edges = adjacency(store)
        assert one.on_edges == pytest.approx((weights * edges)[SAMPLE].sum(1).mean(), rel=1e-4)
        assert one.edge_chance == pytest.approx(edges[SAMPLE].sum(1).mean() / len(everyone))
        known = SAMPLE[labels[SAMPLE] >= 0]
        same = (labels[known, None] == labels[None]) & (labels >= 0)
        share = (weights[known] * same).sum(1) / (weights[known] * (labels >= 0)).sum(1)
        assert one.same_class == pytest.approx(share.mean(), rel=1e-4)
        assert one.class_chance == pytest.approx((same.sum(1) / (labels >= 0).sum()).mean())
        np.fill_diagonal(weights, -1)
        strongest = np.argsort(-weights[[*SAMPLE, *OTHERS]], axis=1, kind="stable")[:, :TOP]
        assert one.attended.node_ids.tolist() == strongest.tolist()
        assert one.top_on_edges == pytest.approx(edges[SAMPLE[:, None], strongest[:4]].mean())
        assert (one.distinct_top, one.num_top) == (len(np.unique(strongest[:4])), 4 * TOP)


def test_with_sampled_keys_entropies_are_estimates_and_say_so(latent: LatentAttention, explained: Explained) -> None:
    store = Store.open(explained.graph)
    whole, part = (study_structure(latent, store, SAMPLE, OTHERS, most) for most in (150, 120))
    assert (whole.sampled_keys, part.sampled_keys) == (None, 120)
    for one, estimated in zip(whole.layers, part.layers, strict=True):
        assert estimated.entropy == pytest.approx(one.entropy, rel=0.3)
        assert set(estimated.attended.node_ids.flatten()) <= set(drawn(150, 120, 1).tolist())
        assert estimated.on_edges == one.on_edges  # which are looked at whatever keys are drawn


def test_neighbors_are_those_of_the_graph_without_the_node_itself(explained: Explained) -> None:
    store = Store.open(explained.graph)
    edges, order = adjacency(store), np.array([149, 0, 75, 3])
    for node, heard in zip(order, in_neighbors(store, order), strict=True):
        assert sorted(heard.tolist()) == np.flatnonzero(edges[node]).tolist()


def test_a_sample_is_the_same_at_every_time_and_has_no_node_twice() -> None:
    assert drawn(1000, 50, 2).tolist() == drawn(1000, 50, 2).tolist() != drawn(1000, 50, 3).tolist()
    assert len(set(drawn(1000, 50, 2).tolist())) == 50
    assert drawn(7, 50, 2).tolist() == list(range(7))


def adjacency(store: Store) -> NDArray[np.float64]:
    """Ones [target, source] for the edges of the graph, none to itself."""
    edges = np.zeros((store.num_nodes, store.num_nodes))
    for number, part in enumerate(store.parts):
        indptr, sources = store.in_edges(number)
        targets = np.repeat(np.arange(part.start, part.stop), np.diff(indptr.numpy()))
        edges[targets, sources.numpy()[: len(targets)]] = 1
    np.fill_diagonal(edges, 0)
    return edges
