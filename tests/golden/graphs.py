"""Small graphs that are the same on every machine, as npz files and as partitions that can be repeated."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.golden.commands import run_command

NUM_NODES, NUM_FEATURES, NUM_CLASSES = 120, 8, 5
PARTS = 3
Arrays = dict[str, NDArray[Any]]


def plain(num_nodes: int = NUM_NODES, seed: int = 1) -> Arrays:
    """Classes with a center each, edges mostly within them; the last nodes have no edges, the first has a loop."""
    stream = np.random.RandomState(seed)  # whose numbers never change with numpy's version
    labels = stream.randint(NUM_CLASSES, size=num_nodes)
    centers = stream.standard_normal((NUM_CLASSES, NUM_FEATURES))
    features = centers[labels] + stream.standard_normal((num_nodes, NUM_FEATURES))
    sources, others = stream.randint(num_nodes - 4, size=(2, 2 * num_nodes))
    kept = (labels[sources] == labels[others]) | (stream.uniform(size=len(sources)) < 0.4)
    edges = np.stack([np.append(sources[kept], 0), np.append(others[kept], 0)])
    order = stream.permutation(num_nodes)
    split = {"train_idx": order[: num_nodes // 2], "valid_idx": order[num_nodes // 2 : -30], "test_idx": order[-30:]}
    return {"edge_index": edges, "feat": features.astype(np.float32), "label": labels, **split}


def sparse() -> Arrays:
    """The plain graph with mostly empty features, as CSR parts."""
    arrays = plain(seed=2)
    dense = np.maximum(arrays.pop("feat") - 1, 0)
    rows, columns = dense.nonzero()
    parts = {
        "feat_indptr": np.searchsorted(rows, np.arange(NUM_NODES + 1)),
        "feat_indices": columns,
        "feat_data": dense[rows, columns],
        "feat_shape": np.array(dense.shape),
    }
    return {**arrays, **parts}


def binary() -> Arrays:
    arrays = plain(seed=3)
    return {**arrays, "label": (arrays["label"] > 1).astype(np.int64)}


def multi() -> Arrays:
    """Three questions a node, some of them without an answer."""
    arrays = plain(seed=4)
    answers = (arrays["feat"][:, :3] > 0).astype(np.int64)
    answers[::7, 1] = -1
    return {**arrays, "label": answers}


MAKERS: dict[str, tuple[Callable[[], Arrays], tuple[str, ...]]] = {
    "plain": (plain, ()),
    "directed": (plain, ("--directed",)),
    "sparse": (sparse, ()),
    "binary": (binary, ("--task", "binary")),
    "multi": (multi, ("--task", "multi")),
}


def build_graph(folder: Path, name: str) -> Path:
    """The partition of a graph by its name, made if it is not there."""
    out = folder / name
    if out.exists():
        return out
    if name == "made":
        run_command("partition", "amazon2m-like", "--scale", "0.00005", *dividing(PARTS), "--out", out)
        return out
    make, options = MAKERS[name]
    np.savez(folder / f"{name}.npz", **make())  # type: ignore[arg-type]
    how = assigned(folder / f"{name}.txt") if name == "sparse" else dividing(PARTS)
    run_command("partition", folder / f"{name}.npz", *options, *how, "--out", out)
    return out


def dividing(parts: int) -> tuple[str, ...]:
    """At random, since METIS may divide a graph another way each time."""
    return ("--parts", str(parts), "--method", "random")


def assigned(path: Path) -> tuple[str, ...]:
    """Parts of uneven sizes."""
    path.write_text("".join(f"{(node % 7) // 3}\n" for node in range(NUM_NODES)))
    return ("--parts", str(PARTS), "--method", "file", "--assignment", str(path))
