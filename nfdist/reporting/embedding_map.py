"""A map of a sample of nodes: their embeddings in two dimensions, and the strongest attention among them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nfdist.errors import CheckpointError
from nfdist.reporting.latent import LatentAttention
from nfdist.store.columns import stack_lists

NODES = 600
NEIGHBORS_OF_A_NODE = 2
LINKS = 120
LEAST_FOR_TSNE = 60  # below, its neighborhoods would be most of the sample


@dataclass(frozen=True)
class EmbeddingMap:
    """Places [n, 2] of nodes by node id; `links` are pairs of their rows, who attends and whom, with the weight."""

    method: str
    node_ids: NDArray[np.int64]
    places: NDArray[np.float64]
    links: tuple[tuple[int, int, float], ...]


def read_embeddings(path: Path, node_ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """The embeddings [n, c] of some nodes, ascending, a row group at a time."""
    found, start = [], 0
    try:
        file = pq.ParquetFile(path)
        for number in range(file.num_row_groups):
            stop = start + file.metadata.row_group(number).num_rows
            wanted = node_ids[np.searchsorted(node_ids, start) : np.searchsorted(node_ids, stop)] - start
            if len(wanted):
                rows: Any = file.read_row_group(number, columns=["embedding"])["embedding"].take(wanted)
                found.append(stack_lists(rows, str(path)))
            start = stop
    except (pa.ArrowException, OSError, KeyError) as error:
        reason = (str(error) or repr(error)).splitlines()[0]
        raise CheckpointError(f"{path} cannot be read ({reason}): nfdist evaluate makes it anew") from None
    if not found or sum(map(len, found)) < len(node_ids):
        raise CheckpointError(f"{path} has {start:,} nodes, fewer than its graph: nfdist evaluate makes it anew")
    return np.concatenate(found).astype(np.float64)


def make_map(
    embeddings: NDArray[np.float64], node_ids: NDArray[np.int64], latent: LatentAttention | None
) -> EmbeddingMap:
    """Place the nodes, and link them by their attention in the last layer."""
    method, places = project(embeddings)
    links = () if latent is None else strongest_links(latent, node_ids)
    return EmbeddingMap(method, node_ids, places, links)


def project(embeddings: NDArray[np.float64]) -> tuple[str, NDArray[np.float64]]:
    """Two coordinates of each row, by t-SNE, of few rows by their principal components; the same at every time."""
    centered = embeddings - embeddings.mean(0)
    if len(centered) < LEAST_FOR_TSNE or not centered.any():
        left, sizes, _ = np.linalg.svd(centered, full_matrices=False)
        components = (left * sizes)[:, :2]
        return "PCA", np.pad(components, ((0, 0), (0, 2 - components.shape[1])))
    from sklearn.manifold import TSNE  # here, since it takes seconds to load

    placed = TSNE(init="pca", random_state=0, perplexity=min(30, len(centered) // 4), n_jobs=1).fit_transform(centered)
    return "t-SNE", placed.astype(np.float64)


def strongest_links(latent: LatentAttention, node_ids: NDArray[np.int64]) -> tuple[tuple[int, int, float], ...]:
    """The strongest of all pairs of these nodes in the last layer, at most two of each that attends."""
    weights = latent.weights(latent.layers[-1], node_ids, node_ids).double().numpy()
    np.fill_diagonal(weights, -1.0)
    kept = np.argsort(-weights, axis=1, kind="stable")[:, : min(NEIGHBORS_OF_A_NODE, len(node_ids) - 1)]
    pairs = [(row, int(key), float(weights[row, key])) for row, keys in enumerate(kept) for key in keys]
    return tuple(sorted(pairs, key=lambda pair: -pair[2])[:LINKS])
