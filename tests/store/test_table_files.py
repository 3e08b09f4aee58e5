"""Tables as Spark, DuckDB and pandas leave them: files, folders of files, and columns in the names of folders."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from nfdist.errors import PartitionError
from nfdist.store.table_files import check_column, find_table, open_table

TABLE = pd.DataFrame({"id": [1, 2, 3, 4], "x": [0.5, 1.5, 2.5, 3.5], "kind": ["a", "a", "b", "b"]})


def write(table: pd.DataFrame, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False) if path.suffix == ".csv" else table.to_parquet(path, index=False)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("place", ["nodes{}", "nodes/part-0{}", "nodes{}/part-0{}", "nodes/2024/01/part-0{}"])
def test_a_table_is_found_however_it_is_kept(tmp_path: Path, place: str, suffix: str) -> None:
    write(TABLE, tmp_path / place.replace("{}", suffix))
    path = find_table(tmp_path, "nodes")
    assert path is not None
    rows = open_table(path).read(["x", "id"])
    assert rows.table.to_pydict() == {"x": [0.5, 1.5, 2.5, 3.5], "id": [1, 2, 3, 4]}
    assert find_table(tmp_path, "edges") is None


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("inside", [False, True])
def test_columns_may_be_in_the_names_of_folders(tmp_path: Path, suffix: str, inside: bool) -> None:
    for kind, part in TABLE.groupby("kind"):
        kept = part if inside else part.drop(columns="kind")
        write(kept, tmp_path / "nodes" / f"kind={kind}" / f"year={2020 + len(kind)}" / f"part-0{suffix}")
    (tmp_path / "nodes" / "_SUCCESS").touch()
    table = open_table(tmp_path / "nodes")
    assert set(table.schema.names) == {"id", "x", "kind", "year"}
    assert table.in_folders == {"kind", "year"}
    rows = table.read(["kind", "year", "id"])
    assert rows.table.to_pydict() == {"kind": ["a", "a", "b", "b"], "year": [2021] * 4, "id": [1, 2, 3, 4]}
    assert rows.table.schema.field("year").type == table.schema.field("year").type == pa.int64()


def test_hives_word_for_nothing_is_a_gap_and_its_escapes_are_read(tmp_path: Path) -> None:
    for kind in ("__HIVE_DEFAULT_PARTITION__", "New%20York"):
        write(TABLE[["id"]], tmp_path / f"kind={kind}" / "part.parquet")
    values = open_table(tmp_path).read(["kind"])["kind"].to_pylist()
    assert set(values) == {None, "New York"}


def test_files_of_other_columns_or_none_are_named(tmp_path: Path) -> None:
    write(TABLE, tmp_path / "nodes" / "a.parquet")
    write(TABLE.drop(columns="x"), tmp_path / "nodes" / "b.parquet")
    with pytest.raises(PartitionError, match=r"b.parquet has no column 'x', which .*a.parquet has"):
        open_table(tmp_path / "nodes")
    write(TABLE.assign(y=1), tmp_path / "nodes" / "b.parquet")
    with pytest.raises(PartitionError, match=r"a.parquet has no column 'y', which .*b.parquet has"):
        open_table(tmp_path / "nodes")
    (tmp_path / "nodes" / "b.parquet").write_bytes(b"")
    with pytest.raises(PartitionError, match=r"b.parquet cannot be read"):
        open_table(tmp_path / "nodes")
    write(TABLE.assign(x=["u", "v", "w", "x"]), tmp_path / "nodes" / "b.parquet")
    with pytest.raises(PartitionError, match=r"cannot be read .*x.*incompatible types"):
        open_table(tmp_path / "nodes")
    write(TABLE[:0], tmp_path / "nodes" / "b.parquet")  # as Spark leaves them
    assert len(open_table(tmp_path / "nodes").read(["id"])) == 4


def test_words_for_nothing_are_missing_in_a_csv_unless_they_are_wanted_as_words(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,region,label,n\n1,NA,NA,NA\n2,EU,,2\n3,,null,3\n")
    table = open_table(tmp_path / "a.csv")
    rows = table.read(["region", "label", "n"], verbatim=["region"])
    assert rows["region"].to_pylist() == ["NA", "EU", ""]
    assert rows["label"].to_pylist() == [None, None, None]
    assert rows["n"].to_pylist() == [None, 2, 3]


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("id\n1\n")
    for path, message in (("a.txt", "is no table"), ("b.csv", "does not exist"), (".", "has no files named")):
        with pytest.raises(PartitionError, match=message):
            open_table(tmp_path / path)


@pytest.mark.parametrize(
    ("columns", "hint"),
    [
        (["supplier", "age"], r"it has 'supplier', 'age'$"),
        (["supplier", "teir"], r"did you mean 'teir'\?$"),
        ([], "it has no columns$"),
        ([f"x{number}" for number in range(31)], ".*'x29' and 1 more$"),
    ],
)
def test_only_a_column_that_is_spelled_alike_is_suggested(columns: list[str], hint: str) -> None:
    with pytest.raises(PartitionError, match=f"^a.csv has no column 'tier': {hint}"):
        check_column("a.csv", "tier", columns)
