"""Wrong tables, each refused by `nfdist partition` in one line with exit code 2, and nothing is written."""

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nfdist.cli.main import main
from nfdist.store.store import Store
from tests.partitioning.wrong_tables import COUNT, EDGES, NODES, ONE_FILE, WRONG_EDGES, Change, with_cell, write


def refused(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> str:
    """The one line of a partition that is refused; what tells of progress is no line of its own."""
    before = sorted(folder.rglob("*"))
    assert main(["partition", str(folder), "--parts", "2", "--out", str(folder.parent / "graph"), *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [line for line in captured.err.splitlines() if not line.startswith("nfdist: partition ")]
    assert len(lines) == 1, captured.err
    assert sorted(folder.rglob("*")) == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    return lines[0]


@pytest.mark.parametrize("name", ONE_FILE)
def test_a_wrong_table_of_nodes(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suffix, change, words, message = ONE_FILE[name]
    nodes = NODES.assign(label=[0, 1] * (COUNT // 2)) if "numeric labels" in name else NODES
    write(change(nodes), tmp_path / "tables" / f"nodes{suffix}")
    write(EDGES, tmp_path / "tables" / "edges.parquet")
    line = refused(capsys, tmp_path / "tables", *words)
    assert re.search(message, line), line


@pytest.mark.parametrize(("suffix", "change", "message"), WRONG_EDGES)
def test_a_wrong_table_of_edges(
    suffix: str, change: Change, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(NODES, tmp_path / "tables" / "nodes.parquet")
    write(change(EDGES), tmp_path / "tables" / f"edges{suffix}")
    assert re.search(message, refused(capsys, tmp_path / "tables"))


def test_ids_in_a_column_that_nobody_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(NODES.rename(columns={"id": "supplier"}), tmp_path / "tables" / "nodes.csv")
    write(EDGES, tmp_path / "tables" / "edges.csv")
    line = refused(capsys, tmp_path / "tables")
    assert "6 ends of edges name no node, the first is 'n0': every id must be in the nodes' row numbers, from 0" in line
    assert "name another column by --id-column; the nodes have 'supplier', 'age', 'city'" in line
    write(NODES.assign(id=range(COUNT), key=NODES["id"]), tmp_path / "tables" / "nodes.csv")
    line = refused(capsys, tmp_path / "tables")
    assert (
        "in the nodes' column 'id', or name another column by --id-column; the nodes have 'age', 'city', 'key'" in line
    )


@pytest.mark.parametrize("column", ["id", "city", "label"])
def test_a_csv_of_nodes_that_is_not_utf8(column: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(EDGES, tmp_path / "tables" / "edges.csv")
    with_cell(column, "Málaga")(NODES).to_csv(tmp_path / "tables" / "nodes.csv", index=False, encoding="latin-1")
    line = refused(capsys, tmp_path / "tables")
    assert f"nodes.csv: row 8, column {column!r} is not UTF-8: save the file as UTF-8" in line


def test_bytes_of_parquet_are_left_out(tmp_path: Path) -> None:
    write(NODES.assign(photo=b"caf\xe9"), tmp_path / "tables" / "nodes.parquet")
    write(EDGES, tmp_path / "tables" / "edges.csv")
    graph = tmp_path / "graph"
    assert main(["partition", str(tmp_path / "tables"), "--parts", "2", "--out", str(graph)]) == 0
    assert "binary is no kind of feature" in Store.open(graph).manifest.schema.unused["photo"]


def folder_with(change: Callable[[Path], None], folder: Path) -> Path:
    """A folder of two files of nodes, changed."""
    write(NODES[:6], folder / "nodes" / "part-0.parquet")
    write(NODES[6:], folder / "nodes" / "part-1.parquet")
    write(EDGES, folder / "edges.csv")
    change(folder / "nodes" / "part-1.parquet")
    return folder


def two_of_a_name(path: Path) -> None:
    table = pa.Table.from_pandas(NODES[6:], preserve_index=False)
    for part in (path, path.with_name("part-0.parquet")):
        pq.write_table(table.append_column("age", table["age"]), part)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_bytes(b""), "part-1.parquet cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:200]), "part-1.parquet cannot be read"),
        (lambda path: write(NODES[6:].drop(columns="city"), path), "part-1.parquet has no column 'city'"),
        (lambda path: write(NODES[6:].assign(more=1), path), "part-0.parquet has no column 'more'"),
        (lambda path: write(NODES[6:].astype({"age": str}), path), "age has incompatible types: double vs"),
        (lambda path: write(NODES[6:].assign(id=range(6)), path), "id has incompatible types"),
        (two_of_a_name, "has two columns called 'age'"),
        (lambda path: (path.parent.parent / "edges.csv").unlink(), "has no edges.parquet or edges.csv"),
        (
            lambda path: (path.parent.parent / "edges.csv").write_text("source,target\nn0,n1,n2\n"),
            "edges.csv cannot be read",
        ),
        (
            lambda path: (path.parent.parent / "edges.csv").write_bytes(b"source,target\nn\xff,n1\n"),
            "edges.csv: row 1, column 'source' is not UTF-8: save the file as UTF-8",
        ),
        (
            lambda path: write(NODES[6:], path.parent / "kind=a" / "part-2.parquet"),
            "has no column 'kind', which",
        ),
    ],
)
def test_a_wrong_folder_of_files(
    change: Callable[[Path], None], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert re.search(message, refused(capsys, folder_with(change, tmp_path / "tables")))


def test_a_category_of_a_million_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.array(range(1_000_000))
    nodes = pa.table({"id": rows, "name": rows.cast(pa.string()), "x": pa.nulls(len(rows), pa.float32()).fill_null(1)})
    words = pa.compute.binary_join_element_wise("word", nodes["name"], "-")
    (tmp_path / "tables").mkdir()
    pq.write_table(nodes.set_column(1, "name", words), tmp_path / "tables" / "nodes.parquet")
    pq.write_table(pa.table({"source": [0, 1], "target": [1, 2]}), tmp_path / "tables" / "edges.parquet")
    line = refused(capsys, tmp_path / "tables")
    assert "column 'name' has 1,000,000 different values, too many for categories (at most 1,000)" in line
    assert "--column name=ignore" in line
