"""Wrong tables, each refused by `nfdist partition` in one line with exit code 2, and nothing is written."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nfdist.cli.main import main
from nfdist.store.store import Store

COUNT = 12
TIMES = pd.Timestamp("2020-01-01") + pd.to_timedelta(range(COUNT), "D")
Change = Callable[[pd.DataFrame], pd.DataFrame]
NODES = pd.DataFrame(
    {
        "id": [f"n{number}" for number in range(COUNT)],
        "age": np.arange(COUNT) ** 2 / 4,
        "city": ["Rome", "Oslo", "Lima"] * (COUNT // 3),
        "label": ["yes", "no"] * (COUNT // 2),
    }
)
EDGES = pd.DataFrame({"source": ["n0", "n1", "n2"], "target": ["n1", "n2", "n3"]})


def with_cell(column: str, value: Any, row: int = 7) -> Change:
    def change(table: pd.DataFrame) -> pd.DataFrame:
        changed = table.astype({column: object}) if isinstance(value, str) else table.copy()
        changed.loc[row, column] = value
        return changed

    return change


def write(table: pd.DataFrame, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False) if path.suffix == ".csv" else table.to_parquet(path, index=False)


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


ONE_FILE: dict[str, tuple[str, Change, tuple[str, ...], str]] = {
    "an id twice": (".parquet", with_cell("id", "n3"), (), "1 node ids occur more than once, the first is n3"),
    "an id that is missing": (".parquet", with_cell("id", None), (), "1 nodes have no 'id'"),
    "ids that are fractions": (".parquet", lambda t: t.assign(id=t.age), (), "must be integers or text, got double"),
    "ids that are times": (".parquet", lambda t: t.assign(id=TIMES), (), "must be integers or text, got timestamp"),
    "all labels missing": (".parquet", lambda t: t.assign(label=None), (), "all labels are missing in column 'label'"),
    "all labels missing in a csv": (".csv", lambda t: t.assign(label=None), (), "all labels are missing"),
    "a label that is a fraction": (".parquet", lambda t: t.assign(label=t.age), (), "labels must be integers, got"),
    "a word among numeric labels": (".csv", with_cell("label", "x"), (), "column 'label' is 'x', and most of"),
    "a label below -1": (".parquet", lambda t: t.assign(label=-2), (), "12 labels are outside -1"),
    "answers that are not 0 and 1": (".parquet", lambda t: t.assign(label=[[0, 2]] * COUNT), (), "outside -1"),
    "an unknown split": (".parquet", lambda t: t.assign(split="dev"), (), "split 'dev' is unknown"),
    "two splits a node": (".parquet", lambda t: t.assign(train_mask=True, val_mask=True), (), "are in another too"),
    "a mask of words": (".parquet", lambda t: t.assign(train_mask="x"), (), "mask 'train_mask' must be true or false"),
    "an infinite number": (".parquet", with_cell("age", np.inf), (), "row 8, column 'age' is inf"),
    "a number too large": (".csv", with_cell("age", 1e39), (), r"row 8, column 'age' is 1e\+39"),
    "mixed types in one column": (".csv", with_cell("age", "seven"), (), "row 8, column 'age' is 'seven'"),
    "numbers as text but for one": (
        ".parquet",
        lambda t: with_cell("age", "seven")(t).astype({"age": str}),
        (),
        "row 8, column 'age' is 'seven', and most of the column are numbers",
    ),
    "no features": (".parquet", lambda t: t[["id", "label"]], (), "has no features"),
    "times alone": (".parquet", lambda t: t[["id", "label"]].assign(at=TIMES), (), "'at' left out: timestamp"),
    "lists of several lengths": (
        ".parquet",
        lambda t: t.assign(features=[[1.0] * (1 + row % 2) for row in range(COUNT)]),
        (),
        "6 lists are ragged, the first in row 2 with 2 values instead of 1",
    ),
    "a gap in a list": (".parquet", lambda t: t.assign(features=[[1.0, None]] * COUNT), (), "entry 2 is missing"),
    "lists of words": (".parquet", lambda t: t.assign(age=[["a"]] * COUNT, city=None), (), "has no features"),
    "lists of nothing": (".parquet", lambda t: t.assign(features=[[]] * COUNT), (), "has no features|are empty"),
    "no nodes": (".parquet", lambda t: t[:0], (), "has no nodes"),
    "a column that is not there": (".parquet", lambda t: t, ("--column", "agee=number"), "did you mean 'age'"),
    "a use that there is not": (".parquet", lambda t: t, ("--column", "age=numbers"), "must be used as one of number"),
    "words as a number": (
        ".parquet",
        lambda t: t,
        ("--column", "city=number"),
        "column 'city' is 'Rome', no number",
    ),
    "numbers as text": (".parquet", lambda t: t, ("--column", "age=text"), "cannot be used as a text, it holds double"),
    "a number as a list": (".parquet", lambda t: t, ("--column", "age=list"), "cannot be used as a list"),
    "times as categories": (
        ".parquet",
        lambda t: t.assign(at=TIMES),
        ("--column", "at=category"),
        "column 'at' cannot be used as a category, it holds timestamp",
    ),
    "a use for the label": (".parquet", lambda t: t, ("--column", "label=ignore"), "column 'label' is no feature"),
    "a gap and rows that shall sum to 1": (
        ".parquet",
        with_cell("age", np.nan),
        ("--normalize-features", "row"),
        "column 'age' has 1 gaps, and rows with gaps have no sum",
    ),
    "a gap and nearest neighbors": (
        ".parquet",
        with_cell("age", np.nan),
        ("--knn", "2"),
        "column 'age' has 1 gaps, and distances to gaps are unknown",
    ),
    "a name for every node as a feature": (
        ".parquet",
        lambda t: t.assign(name=[f"x{row}" for row in range(COUNT)]),
        ("--feature-columns", "name", "--split", "random:1/0/0"),
        "column 'name' was chosen as a feature and has 12 different words in 12 training nodes",
    ),
}


@pytest.mark.parametrize("name", ONE_FILE)
def test_a_wrong_table_of_nodes(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suffix, change, words, message = ONE_FILE[name]
    nodes = NODES.assign(label=[0, 1] * (COUNT // 2)) if "numeric labels" in name else NODES
    write(change(nodes), tmp_path / "tables" / f"nodes{suffix}")
    write(EDGES, tmp_path / "tables" / "edges.parquet")
    line = refused(capsys, tmp_path / "tables", *words)
    assert re.search(message, line), line


@pytest.mark.parametrize(
    ("suffix", "change", "message"),
    [
        (".parquet", with_cell("target", "n99", 1), "1 ends of edges name no node, the first is 'n99'"),
        (".parquet", with_cell("source", None, 1), "edges.parquet: row 2 has no 'source': give"),
        (".csv", with_cell("source", "", 1), "edges.csv: row 2 has no 'source': give"),
        (".parquet", lambda t: t.assign(source=[[1], [2], [3]]), "ends of edges must be integers or text"),
        (".parquet", lambda t: t.rename(columns={"source": "begin"}), "needs columns source and target"),
        (".parquet", lambda t: t.assign(target=[1.5, 2.5, 3.5]), "6 ends of edges|3 ends of edges name no node"),
    ],
)
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
