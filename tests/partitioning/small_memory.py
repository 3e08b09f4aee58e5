"""A workspace in which nothing fits: arrays lie in files, sorts and joins are DuckDB's, batches have a few rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from nfdist.partitioning import duckdb_door, workspace
from nfdist.partitioning.duckdb_door import Engine
from nfdist.partitioning.sources import edge_rows, inference
from nfdist.partitioning.workspace import Workspace
from nfdist.scratch import Scratch
from nfdist.store import columns

ROWS = 50


@contextmanager
def tiny_workspace(folder: Path) -> Iterator[Workspace]:
    """One with such limits."""
    with patch.object(duckdb_door, "_COPIES_OF_A_SORT", 1 << 60), Engine(0, 2, folder / "beside", ROWS) as engine:
        yield Workspace(Scratch(0, folder), engine, ROWS)


@contextmanager
def nothing_fits() -> Iterator[None]:
    """Whatever is partitioned has such a workspace."""
    usual = Workspace.within

    @contextmanager
    def within(*given: Any) -> Iterator[Workspace]:
        with usual(*given) as made:
            made.engine.rows_at_once = ROWS
            yield replace(made, rows_at_once=ROWS)

    with (
        patch.object(Workspace, "within", staticmethod(within)),
        patch.object(workspace, "_SHARE_OF_ARRAYS", 0),
        patch.object(duckdb_door, "_COPIES_OF_A_SORT", 1 << 60),
        patch.object(edge_rows, "_MOST_HASHED", ROWS),
        patch.object(inference, "_ROWS_AT_ONCE", ROWS),
        patch.object(columns, "_ROWS_AT_ONCE", ROWS),
    ):
        yield
