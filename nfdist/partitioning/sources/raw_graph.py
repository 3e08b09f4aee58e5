"""RawGraph: what a reader found, before it is checked and put into one form."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_EDGES = np.empty(0, np.int64)


@dataclass
class RawGraph:
    """One graph as read: `original_ids` None means 0 .. n - 1, `num_classes` 0 means as many as the labels show.

    `features` are a matrix, dense or sparse, or the columns of a table. `members` maps the codes of the official split
    to masks or node numbers, as `splits.official` takes them. `names` are what the user calls ids, labels and classes,
    as fields of a Schema. `weights` stand beside the edges.
    """

    name: str
    sources: NDArray[Any]
    targets: NDArray[Any]
    features: Any
    labels: NDArray[Any] | None
    original_ids: NDArray[Any] | None = None
    members: Mapping[int, NDArray[Any]] | None = None
    num_classes: int = 0
    notes: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    weights: NDArray[Any] | None = None
