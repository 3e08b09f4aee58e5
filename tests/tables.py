"""A made table of machines, with columns of every kind, and their edges."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.store.store import Store

MACHINES = 120
OPTIONS = {"id_column": "machine", "label_column": "condition", "parts": 2, "method": "random"}
NOTES = ("runs quietly since the last visit", "bearing hot and loud at full load", "oil leaks, pump was replaced")


def machines(count: int = MACHINES, seed: int = 0) -> pd.DataFrame:
    """Text ids, numbers with few and many gaps, booleans, categories, text, a list, a time, and labels in words."""
    stream = np.random.default_rng(seed)
    state = stream.integers(3, size=count)
    hours, load = 2 + state + stream.normal(0, 0.5, count), stream.normal(state, 1)
    hours[stream.random(count) < 0.2] = np.nan
    load[7] = np.nan
    sites = np.array(["Lyon", "Oslo", "Porto"], dtype=object)[(state + stream.integers(2, size=count)) % 3]
    sites[stream.random(count) < 0.1] = None
    return pd.DataFrame(
        {
            "machine": [f"M-{number:04}" for number in range(count)],
            "hours": hours,
            "load": load,
            "leased": stream.random(count) < 0.5,
            "site": sites,
            "line": stream.integers(1, 4, count) * 10,
            "note": [f"{NOTES[one]} {number}" for number, one in enumerate(state)],
            "spectrum": list(stream.normal(state[:, None], 1, (count, 3)).astype(np.float32)),
            "installed": pd.Timestamp("2015-01-01") + pd.to_timedelta(stream.integers(3000, size=count), "D"),
            "condition": np.array(["good", "worn", "failing"])[state],
        }
    )


def edges(count: int = MACHINES, seed: int = 1) -> pd.DataFrame:
    ends = np.random.default_rng(seed).integers(count, size=(2, 3 * count))
    return pd.DataFrame(
        {name: [f"M-{number:04}" for number in row] for name, row in zip(("source", "target"), ends, strict=True)}
    )


def save(folder: Path, nodes: pd.DataFrame, suffix: str = ".parquet", joined: pd.DataFrame | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (("nodes", nodes), ("edges", edges() if joined is None else joined)):
        write(table, folder / f"{name}{suffix}")
    return folder


def write(table: pd.DataFrame, path: Path) -> Path:
    table.to_csv(path, index=False) if path.suffix == ".csv" else table.to_parquet(path, index=False)
    return path


def build(folder: Path, out: Path, **options: Any) -> Store:
    """The partition of a folder of tables."""
    partition(Recipe.build(str(folder), {**OPTIONS, "out": str(out), **options}))
    return Store.open(out)
