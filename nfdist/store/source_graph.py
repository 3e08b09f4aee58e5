"""SourceGraph: a graph as its source gives it, before it is partitioned. Every loader makes one."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfdist import seeds
from nfdist.store.row_shares import RowShares
from nfdist.store.schema import Schema

UNASSIGNED, TRAIN, VALID, TEST = 0, 1, 2, 3  # a node's split, as stored
SPLIT_NAMES = ("unassigned", "train", "valid", "test")


@dataclass(frozen=True)
class SourceGraph:
    """Nodes are rows 0 .. n - 1 here; `original_ids` are what the user calls them (unique integers or strings).

    `features` are [n, f] float32 or float16, dense or as a scipy.sparse CSR array; `labels` are integers [n] with -1
    for none, or [n, questions] of 0, 1 and -1 for multi-label tasks; `split` is int8 [n] of the four numbers above.
    A NaN is a gap, in features that a `schema` says may have some; without one, features and classes have no names.
    Edges run from sources to targets, exactly as the source lists them; `weights` stand beside them, or there are none.

    Of a world of several ranks each has the features of its `shares` of the nodes, and edges of its own, the first of
    which has the number `first_edge` in the list; all else is of the whole graph.
    """

    name: str
    original_ids: NDArray[Any]
    sources: NDArray[np.integer[Any]]
    targets: NDArray[np.integer[Any]]
    features: Any
    labels: NDArray[Any]
    split: NDArray[np.int8]
    task: str
    num_classes: int
    notes: tuple[str, ...] = field(default=())
    schema: Schema | None = None
    weights: NDArray[Any] | None = None
    shares: RowShares | None = None
    first_edge: int = 0

    @property
    def num_nodes(self) -> int:
        return len(self.original_ids)


def draw_split(labeled: NDArray[np.bool_], fractions: tuple[float, float, float], seed: int) -> NDArray[np.int8]:
    """A random split of the labeled nodes; the others stay unassigned."""
    rows = np.flatnonzero(labeled)
    order = seeds.numpy_generator(seed, "split").permutation(rows)
    # Running sums are rounded, not sizes, so that fractions that sum to 1 leave nobody out.
    ends = np.rint(np.minimum(np.cumsum(fractions), 1.0) * len(rows)).astype(np.int64)
    split = np.full(len(labeled), UNASSIGNED, np.int8)
    for code, start, end in zip((TRAIN, VALID, TEST), (0, *ends), ends, strict=False):
        split[order[start:end]] = code
    return split
