"""Facts: what a run came to, as lists of numbers by name."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.golden.commands import run_command
from tests.golden.graphs import NUM_FEATURES

Numbers = list[Any]  # floats, and None where there is no score
Facts = dict[str, Numbers]

STEP = ("epoch", "nodes", "edges", "learning_rate", "loss", "supervised_loss", "edge_loss", "gradient_norm")
SPLITS = ("train", "valid", "test")
EVALUATION = ("epoch", *SPLITS, *(f"{name}_loss" for name in SPLITS))
TABLES = {
    "predictions": ("label", "probability"),
    "embeddings": ("embedding",),
    "edges": ("source", "target", "weights"),
    "neighbors": ("neighbors", "weights"),
}
SAMPLED = 24


def training_facts(run: Path) -> Facts:
    """All steps and evaluations of a training."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        f"{kind} {key}": [line[key] for line in lines if line["kind"] == kind]
        for kind, keys in (("step", STEP), ("evaluation", EVALUATION))
        for key in keys
    }


def evaluation_facts(run: Path, *options: str) -> Facts:
    """The scores and the tables of `nfdist evaluate`, which leaves states in the run for predictions."""
    outcome = run_command("evaluate", run, *options)
    facts: Facts = {
        "scores": [outcome[name] for name in SPLITS],
        "losses": [outcome["loss"][name] for name in SPLITS],
        "scores by class": [score for name in SPLITS for score in outcome["per_class"][name]],
    }
    for table, columns in TABLES.items():
        path = run / f"{table}.parquet"
        if path.exists():
            read = pq.read_table(path)
            facts |= {f"{table} {column}": column_numbers(read[column]) for column in columns}
    return facts


def column_numbers(column: Any) -> Numbers:
    """A column of numbers, or of lists of them, one after the other."""
    values = column.combine_chunks()
    values = values.flatten() if pa.types.is_list(values.type) else values
    return [float(value) for value in values.to_numpy(zero_copy_only=False)]


def flat(rows: Iterable[Sequence[float]]) -> Numbers:
    return [value for row in rows for value in row]


def write_new_nodes(path: Path) -> Path:
    """New nodes with and without neighbors, and some that the graph has, one of which names itself."""
    neighbors = {1000: [3, 17, 40], 1001: [], 7: [8, 9, 7], 1002: [0], 12: [], 1003: [*range(20, 50), 119]}
    stream = np.random.RandomState(9)
    features = stream.standard_normal((len(neighbors), NUM_FEATURES)).astype(np.float32)
    table = {"id": list(neighbors), "features": list(features), "neighbors": list(neighbors.values())}
    pq.write_table(pa.table(table), path)
    return path


def sampled(facts: Facts) -> dict[str, Any]:
    """The facts with samples in place of long lists."""
    return {name: _sampled(numbers) for name, numbers in facts.items()}


def _sampled(numbers: Numbers) -> Any:
    """A list as it is, or of a long one spread entries, then mean, root mean square and largest entry."""
    if len(numbers) <= SAMPLED + 4 or None in numbers:
        return numbers
    values = np.array(numbers, dtype=np.float64)
    spread = values[np.linspace(0, len(values) - 1, SAMPLED).round().astype(int)]
    summary = [values.mean(), np.sqrt(np.mean(values**2)), np.abs(values).max()]
    return [len(values), [*spread.tolist(), *map(float, summary)]]


def difference(mine: Any, golden: Any) -> float:
    """The largest difference of two lists, relative to the largest entry; infinite if their forms differ."""
    if len(mine) != len(golden):
        return float("inf")
    if golden and isinstance(golden[-1], list):  # a sample, after the length of the whole
        return difference(mine[1], golden[1]) if mine[0] == golden[0] else float("inf")
    if [value is None for value in mine] != [value is None for value in golden]:
        return float("inf")
    left, right = (np.array([value for value in side if value is not None], float) for side in (mine, golden))
    if not len(left) or np.array_equal(left, right):
        return 0.0
    apart = float(np.abs(left - right).max() / np.abs(right).max(initial=1e-300))
    return apart if apart == apart else float("inf")


def differences(mine: dict[str, Any], golden: dict[str, Any]) -> dict[str, float]:
    """The largest difference of every fact that either side has."""
    names = dict.fromkeys((*golden, *mine))
    return {
        name: difference(mine[name], golden[name]) if name in mine and name in golden else float("inf")
        for name in names
    }
