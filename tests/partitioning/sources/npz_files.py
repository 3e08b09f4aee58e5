"""A small graph in an .npz file, with some of its arrays changed."""

from pathlib import Path
from typing import Any

import numpy as np

from nfdist.partitioning.sources import SourceOptions

OPTIONS = SourceOptions()
NODES = 12


def arrays(**changes: Any) -> dict[str, Any]:
    stream = np.random.default_rng(0)
    made = {
        "edge_index": np.array([[0, 1, 2, 2, 5], [1, 2, 2, 2, 0]], np.int32),
        "feat": stream.standard_normal((NODES, 3)).astype(np.float32),
        "label": np.array([0, 1, 2, -1] * 3),
        **changes,
    }
    return {key: value for key, value in made.items() if value is not None}


def save(folder: Path, **changes: Any) -> str:
    np.savez_compressed(folder / "toy.npz", **arrays(**changes))
    return str(folder / "toy.npz")
