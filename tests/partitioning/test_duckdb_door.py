"""Columns come back in order, whether they are sorted here or by DuckDB; what fails on the way is told in our words."""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import duckdb
import numpy as np
import pytest

from nfdist.errors import PartitionError
from nfdist.partitioning import duckdb_door
from nfdist.partitioning.duckdb_door import Columns, Engine


def batches(count: int, by: int) -> list[Columns]:
    """Numbers of 62 bits, or few of them beside others that tell them apart, in batches of uneven sizes."""
    generator = np.random.default_rng(count)
    keys = generator.integers(0, 1 << 62 if by == 1 else 9, count)
    columns: Columns = (keys,) if by == 1 else (keys, generator.permutation(count), generator.random(count))
    cuts = np.sort(generator.integers(0, count + 1, 5))
    return [tuple(np.split(column, cuts)[place] for column in columns) for place in range(6)] if count else []


@pytest.mark.parametrize("by", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 5000])
@pytest.mark.parametrize("here", [False, True])
def test_rows_ascend(tmp_path: Path, count: int, by: int, here: bool) -> None:
    names = ("key", "place", "weight")[: 1 if by == 1 else 3]
    given = batches(count, by)
    with (
        Engine(1 << 26, 2, tmp_path / "out", 700) as engine,
        patch.object(duckdb_door, "_COPIES_OF_A_SORT", 4 if here else 1 << 60),
    ):
        found = list(engine.ascending(iter(given), names, by))
        assert (list(tmp_path.iterdir()) == []) == (here or count == 0)
    assert list(tmp_path.iterdir()) == []
    whole = [np.concatenate(columns) for columns in zip(*given, strict=True)]
    order = np.lexsort(whole[by - 1 :: -1]) if count else None
    for place, column in enumerate(whole):
        assert np.array_equal(np.concatenate([columns[place] for columns in found]), column[order])


def test_rows_out_of_order_are_a_bug_and_not_an_answer(tmp_path: Path) -> None:
    with Engine(1 << 26, 1, tmp_path / "out", 700) as engine, patch.object(duckdb_door, "_COPIES_OF_A_SORT", 1 << 60):
        usual = engine._rows
        engine._rows = lambda query, tables: usual(query.split("ORDER")[0], tables)  # type: ignore[method-assign]
        with pytest.raises(AssertionError, match="out of order"):
            list(engine.ascending(batches(5000, 1), ("key",), 1))


def test_what_fails_on_the_way_is_told_as_it_was(tmp_path: Path) -> None:
    def failing() -> Iterator[Columns]:
        yield from batches(5000, 1)
        raise PartitionError("row 7 is wrong")

    with Engine(1 << 26, 1, tmp_path / "out", 700) as engine, patch.object(duckdb_door, "_COPIES_OF_A_SORT", 1 << 60):
        with pytest.raises(PartitionError, match="row 7 is wrong"):
            list(engine.ascending(failing(), ("key",), 1))
        for error, kind, message in (
            (duckdb.IOException("Could not write file: No space left on device"), OSError, "No space left"),
            (duckdb.OutOfMemoryException("failed to pin block"), PartitionError, "64MiB are too little to sort"),
        ):
            with pytest.raises(kind, match=message), engine._explained([]):
                raise error
        assert sum(len(keys) for (keys,) in engine.ascending(batches(5000, 1), ("key",), 1)) == 5000


def test_more_than_the_limit_is_spilled_and_removed(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    given = [(generator.integers(0, 1 << 62, 1 << 20),) for _ in range(10)]  # 80 MiB of keys
    with Engine(0, 2, tmp_path / "out") as engine:
        found = [keys for (keys,) in engine.ascending(given, ("key",), 1)]
    assert np.array_equal(np.concatenate(found), np.sort(np.concatenate([keys for (keys,) in given])))
    assert list(tmp_path.iterdir()) == []
