"""Attention taken from states is that of the dense definition, for every pair of nodes."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from nfdist import api
from nfdist.attention.dense import dense_log_weights
from nfdist.evaluation.states import States
from nfdist.model.loading import TrainedModel, load_model
from nfdist.reporting.latent import LatentAttention
from nfdist.store.store import Store
from tests.reporting.building import train_run
from tests.reporting.explained import Explained


def dense_weights(trained: TrainedModel, states: States, layer: int, hidden: Tensor) -> Tensor:
    """[h, n, n] from the hidden states [n, c] that the layer saw."""
    model = trained.nodeformer("this test")
    kernel = model.evaluation_kernel(trained.evaluation_seed, layer, model.input.weight)
    own = model.layer(layer)
    shape = (len(hidden), own.heads, -1)
    queries, keys = own.query(hidden).view(shape), own.key(hidden).view(shape)
    return dense_log_weights(queries, keys, kernel)[:, 0].exp()


@pytest.mark.parametrize("epsilon", [0.0, 1e-3])
def test_it_is_that_of_the_dense_definition(epsilon: float, explained: Explained, tmp_path: Path) -> None:
    sections: dict[str, Any] = {
        "attention": {"epsilon": epsilon},
        "train": {"precision": "float64", "epochs": 1, "seeds": [0]},
    }
    trained, states, store = opened(train_run(tmp_path / "run", explained.graph, **sections))
    latent, everyone = LatentAttention(trained, states, store), np.arange(store.num_nodes)
    for layer in latent.layers:
        hidden = states.hidden[layer - 1].rows()
        expected = dense_weights(trained, states, layer, hidden).detach().mean(0)
        assert torch.allclose(latent.weights(layer, everyone, everyone), expected, rtol=1e-8, atol=1e-14)
        some = np.array([7, 3, 99])
        assert torch.allclose(latent.weights(layer, some, some), expected[some][:, some], rtol=1e-8, atol=1e-14)
        one = torch.ones(1, dtype=torch.float64)
        assert torch.allclose(latent.queries(layer, everyone).sum(2), one)
        assert torch.allclose(latent.keys(layer, everyone).sum(0), one)


def test_without_relations_states_are_made_anew(explained: Explained, tmp_path: Path) -> None:
    sections: dict[str, Any] = {
        "relation": {"order": 0},
        "train": {"precision": "float64", "epochs": 1, "seeds": [0], "edge_loss": 0.0},
    }
    path = train_run(tmp_path / "run", explained.graph, evaluated=False, **sections)
    api.evaluate(path, top_neighbors="<i>node</i> 5", count=4)
    trained, states, store = opened(path)
    assert not states.hidden
    latent = LatentAttention(trained, states, store)
    exported = exported_neighbors(path)
    node = store.node_ids(np.array(["<i>node</i> 5"], dtype=object)).numpy()
    for layer in latent.layers:
        weights = latent.weights(layer, node, np.arange(store.num_nodes))[0]
        strongest, places = weights.topk(4)
        assert store.original_ids(places).tolist() == exported[layer][0]
        assert strongest.tolist() == pytest.approx(exported[layer][1], rel=1e-5)


def opened(path: Path) -> tuple[TrainedModel, States, Store]:
    trained = load_model(path)
    return trained, States.open(path, trained), Store.open(trained.config.data.partition)


def exported_neighbors(path: Path) -> dict[int, tuple[list[str], list[float]]]:
    rows = pq.read_table(path / "neighbors.parquet").to_pylist()
    return {row["layer"]: (row["neighbors"], row["weights"]) for row in rows}
