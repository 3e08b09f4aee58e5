"""Every way to look up the ends of edges finds the same rows and misses the same names."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from nfdist.errors import PartitionError
from nfdist.partitioning.sources import edge_rows
from nfdist.partitioning.sources.edge_rows import to_rows
from nfdist.partitioning.workspace import Workspace
from nfdist.store.table_files import Rows
from tests.partitioning.small_memory import tiny_workspace

NODES, EDGES = 90, 400


def ids_of(kind: str) -> Any:
    order = np.random.default_rng(0).permutation(NODES)
    if kind == "row numbers":
        return np.arange(NODES)
    return order * 3 - 7 if kind == "integers" else np.array([f"käse {number}" for number in order], dtype=object)


def looked_up(folder: Path, ids: Any, edges: dict[str, Any], tiny: bool) -> list[list[int]]:
    with (
        tiny_workspace(folder) if tiny else nullcontext(Workspace.unlimited()) as workspace,
        patch.object(edge_rows, "_MOST_HASHED", 60 if tiny else 1 << 20),
    ):
        rows = to_rows(Rows(pa.table(edges), ((Path("edges"), EDGES),)), ("a", "b"), ids, "id", ["x"], workspace)
    return [row.tolist() for row in rows]


@pytest.mark.parametrize("tiny", [False, True])
@pytest.mark.parametrize("kind", ["row numbers", "integers", "texts"])
def test_ends_are_found_in_the_order_of_the_edges(tmp_path: Path, kind: str, tiny: bool) -> None:
    ids, generator = ids_of(kind), np.random.default_rng(1)
    rows = generator.integers(0, NODES, (2, EDGES))
    columns = [pa.array(ids[row].tolist()) for row in rows]
    if kind == "texts":
        columns[0] = columns[0].dictionary_encode()
    elif kind == "integers":
        columns[1] = columns[1].cast(pa.string())
    assert looked_up(tmp_path, ids, dict(zip("ab", columns, strict=True)), tiny) == rows.tolist()


@pytest.mark.parametrize("tiny", [False, True])
@pytest.mark.parametrize(
    ("kind", "wrong"), [("row numbers", -1), ("row numbers", NODES), ("integers", 0), ("texts", "")]
)
def test_names_of_no_node_are_counted_and_the_first_is_told(tmp_path: Path, kind: str, wrong: Any, tiny: bool) -> None:
    ids = ids_of(kind)
    assert wrong not in ids.tolist()
    names = [ids[number % NODES] for number in range(EDGES)]
    spoiled = [wrong if number in (210, 300) else name for number, name in enumerate(names)]
    with pytest.raises(PartitionError, match=f"edges: 2 ends of edges name no node, the first is {wrong!r}: every id"):
        looked_up(tmp_path, ids, {"a": pa.array(names), "b": pa.array(spoiled)}, tiny)
