"""A map shows the rows of its nodes, at the same places every time, and the strongest attention among them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from nfdist.errors import CheckpointError
from nfdist.evaluation.states import States
from nfdist.model.loading import load_model
from nfdist.reporting.embedding_map import NEIGHBORS_OF_A_NODE, project, read_embeddings, strongest_links
from nfdist.reporting.latent import LatentAttention
from nfdist.store.store import Store
from tests.reporting.explained import Explained


def test_embeddings_are_those_of_the_nodes_whatever_the_row_groups_are(tmp_path: Path) -> None:
    rows = np.arange(40, dtype=np.float32).reshape(20, 2)
    pq.write_table(pa.table({"id": range(20), "embedding": rows.tolist()}), tmp_path / "e.parquet", row_group_size=6)
    wanted = np.array([0, 5, 6, 19])
    assert read_embeddings(tmp_path / "e.parquet", wanted).tolist() == rows[wanted].tolist()
    with pytest.raises(CheckpointError, match="has 20 nodes, fewer than its graph"):
        read_embeddings(tmp_path / "e.parquet", np.array([3, 20]))


@pytest.mark.parametrize(("count", "method"), [(20, "PCA"), (80, "t-SNE")])
def test_groups_lie_apart_and_places_are_the_same_every_time(count: int, method: str) -> None:
    stream = np.random.default_rng(0)
    group = np.arange(count) % 2
    rows = stream.standard_normal((count, 5)) + 20 * group[:, None]
    used, places = project(rows)
    assert used == method
    assert np.array_equal(places, project(rows)[1])
    centers = [places[group == one].mean(0) for one in (0, 1)]
    distances = np.stack([np.linalg.norm(places - center, axis=1) for center in centers])
    assert (distances.argmin(0) == group).all()


def test_rows_that_are_all_alike_have_a_map(capsys: pytest.CaptureFixture[str]) -> None:
    assert project(np.ones((100, 3)))[1].tolist() == [[0.0, 0.0]] * 100
    assert project(np.ones((4, 1)))[1].shape == (4, 2)


def test_links_are_the_strongest_pairs(explained: Explained) -> None:
    trained = load_model(explained.path)
    latent = LatentAttention(trained, States.open(explained.path, trained), Store.open(explained.graph))
    nodes = np.arange(0, 150, 3)
    weights = latent.weights(2, nodes, nodes).fill_diagonal_(-1)
    kept = torch.zeros_like(weights).scatter(1, weights.topk(NEIGHBORS_OF_A_NODE, 1).indices, 1) * weights
    expected = kept.flatten()[kept.flatten() > 0].sort(descending=True).values.tolist()
    links = strongest_links(latent, nodes)
    assert [weight for *_, weight in links] == pytest.approx(expected)
    assert all(weights[row, key].item() == pytest.approx(weight) for row, key, weight in links)
