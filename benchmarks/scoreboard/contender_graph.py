"""A partition as other libraries take it: features, labels and splits as tensors, in-edges as one CSC pair."""

import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from nfdist.sparse.dgl_door import dgl
from nfdist.store.source_graph import TEST, TRAIN, VALID
from nfdist.store.store import Store


@dataclass(frozen=True)
class Rows:
    """Features of some nodes as a model's first linear map takes them: dense, or the words that each has."""

    dense: Tensor | None = None
    words: Tensor | None = None
    ends: Tensor | None = None
    counts: Tensor | None = None

    @staticmethod
    def of(features: Tensor) -> "Rows":
        if features.layout == torch.sparse_csr:
            return Rows(None, features.col_indices().long(), features.crow_indices().long(), features.values().float())
        return Rows(features.float())


class FirstLayer(nn.Module):
    """What makes dense rows of features: nothing where they are dense, else a linear map of the words and ReLU."""

    def __init__(self, num_features: int, width: int, sparse: bool) -> None:
        super().__init__()
        self.width = width if sparse else num_features
        self.weight = nn.Parameter(torch.empty(num_features, width)) if sparse else None
        if self.weight is not None:
            nn.init.xavier_uniform_(self.weight)

    def forward(self, rows: Rows) -> Tensor:
        if self.weight is None:
            assert rows.dense is not None
            return rows.dense
        assert rows.words is not None
        sums = F.embedding_bag(
            rows.words, self.weight, rows.ends, mode="sum", per_sample_weights=rows.counts, include_last_offset=True
        )
        return F.relu(sums)


class ContenderGraph:
    """The same graph, labels and split that nfdist has, read once."""

    def __init__(self, directory: Path) -> None:
        self.store = Store.open(directory)
        self.everyone = torch.arange(self.store.num_nodes)
        split = self.store.split(self.everyone)
        self.labels = self.store.labels(self.everyone)
        labeled = self.labels >= 0
        self.train, self.valid, self.test = (
            ((split == code) & labeled).nonzero()[:, 0] for code in (TRAIN, VALID, TEST)
        )

    @property
    def num_nodes(self) -> int:
        return self.store.num_nodes

    @property
    def num_classes(self) -> int:
        return self.store.num_classes

    def first_layer(self, width: int) -> FirstLayer:
        return FirstLayer(self.store.num_features, width, self.store.manifest.feature_kind == "sparse")

    def take(self, nodes: Tensor) -> Rows:
        return Rows.of(self.store.take(nodes))

    @cached_property
    def rows(self) -> Rows:
        """Of all nodes, in memory."""
        return self.take(self.everyone)

    def in_edges(self, *, loops: bool) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Offsets and sources of all in-edges; with `loops` every node has one from itself, once."""
        degrees, pieces = [], []
        for number, part in enumerate(self.store.parts):
            indptr, sources = self.store.in_edges(number)
            counts = indptr.diff().numpy()
            own = np.array(sources.numpy(), dtype=np.int32)
            if loops:
                own, counts = _with_loops(own, counts, part.start)
            degrees.append(counts)
            pieces.append(own)
        ends = np.concatenate([[0], np.cumsum(np.concatenate(degrees))]).astype(np.int32)
        return ends, np.concatenate(pieces)

    def dgl_graph(self, *, loops: bool) -> Any:
        """In DGL, with edges of 32 bits."""
        ends, sources = map(torch.from_numpy, self.in_edges(loops=loops))
        edges = torch.empty(0, dtype=torch.int32)
        return dgl().graph(("csc", (ends, sources, edges)), num_nodes=self.num_nodes, idtype=torch.int32)

    @cached_property
    def normalized(self) -> Tensor:
        """The adjacency with self-loops, each edge by the roots of both degrees, a row for each target: sparse CSR."""
        ends, sources = self.in_edges(loops=True)
        root = 1 / np.sqrt(np.diff(ends).astype(np.float32))
        weights = np.repeat(root, np.diff(ends)) * root[sources]
        rows, columns, values = map(torch.from_numpy, (ends, sources, weights))
        size = (self.num_nodes, self.num_nodes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that this layout is in beta
            return torch.sparse_csr_tensor(rows, columns, values, size=size, check_invariants=False)

    def scores(self, answers: Tensor) -> dict[str, float]:
        """Accuracy of the answers [n] of all nodes."""
        parts = {"valid": self.valid, "test": self.test}
        return {name: float((answers[nodes] == self.labels[nodes]).double().mean()) for name, nodes in parts.items()}


def _with_loops(sources: NDArray[np.int32], counts: Any, start: int) -> tuple[NDArray[np.int32], Any]:
    """In-edges of consecutive nodes with one of each from itself, where there was none, before the others."""
    targets = np.repeat(np.arange(start, start + len(counts), dtype=np.int32), counts)
    has = np.zeros(len(counts), bool)
    has[targets[targets == sources] - start] = True
    places = np.concatenate([[0], np.cumsum(counts)[:-1]])[~has]
    nodes = np.flatnonzero(~has).astype(np.int32) + np.int32(start)
    return np.insert(sources, places, nodes), counts + ~has
