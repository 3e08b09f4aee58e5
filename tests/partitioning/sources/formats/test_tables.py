"""Tables of nodes and edges: any ids, any columns, one file or many."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from nfdist.errors import PartitionError
from nfdist.partitioning.sources import SourceCounts, SourceOptions, counts, load
from nfdist.partitioning.sources.splits import DRAWN_NOTE

FEATURES = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
NUMBERS = [70, -3, 2**40, 9]
WORDS = ["ü1", "007", "7", "b c"]


def nodes_of(ids: list[Any], **changes: Any) -> pa.Table:
    made = {
        "id": ids,
        "features": pa.array(list(FEATURES), pa.list_(pa.float32())),
        "label": [1, 0, None, 2],
        "split": ["train", "val", None, "test"],
        **changes,
    }
    return pa.table({key: value for key, value in made.items() if value is not None})


def edges_of(ids: list[Any]) -> pa.Table:
    return pa.table({"source": [ids[0], ids[2], ids[2]], "target": [ids[1], ids[2], ids[3]], "weight": [0.5, 1.0, 2.0]})


def save(folder: Path, nodes: pa.Table, edges: pa.Table, suffix: str = ".parquet", split_files: bool = False) -> str:
    for name, table in (("nodes", nodes), ("edges", edges)):
        path = folder / f"{name}{suffix}"
        if split_files:
            path.mkdir()
            (path / "_SUCCESS").touch()
            write(table.slice(0, 1), path / f"part-0{suffix}")
            write(table.slice(1), path / f"part-1{suffix}")
        else:
            write(table, path)
    return str(folder)


def write(table: pa.Table, path: Path) -> None:
    pa.csv.write_csv(table, path) if path.suffix == ".csv" else pa.parquet.write_table(table, path)


@pytest.mark.parametrize("split_files", [False, True])
@pytest.mark.parametrize("ids", [NUMBERS, WORDS, ["1", "2", "3", "4"]])
def test_parquet_comes_back_by_original_id(tmp_path: Path, ids: list[Any], split_files: bool) -> None:
    source = save(tmp_path, nodes_of(ids), edges_of(ids), split_files=split_files)
    graph = load(source, SourceOptions())
    assert graph.original_ids.tolist() == ids
    assert np.array_equal(graph.features, FEATURES)
    assert graph.original_ids[graph.sources].tolist() == [ids[0], ids[2], ids[2]]
    assert graph.original_ids[graph.targets].tolist() == [ids[1], ids[2], ids[3]]
    assert graph.labels.tolist() == [1, 0, -1, 2]
    assert graph.split.tolist() == [1, 2, 0, 3]
    assert graph.weights is not None
    assert graph.weights.tolist() == [0.5, 1.0, 2.0]
    assert counts(source, SourceOptions()) == SourceCounts(4, 3, 3, None, "float32")


@pytest.mark.parametrize("split_files", [False, True])
@pytest.mark.parametrize("ids", [NUMBERS, WORDS, ["007", "08", "1", "-0"]])
def test_csv_comes_back_by_original_id(tmp_path: Path, ids: list[Any], split_files: bool) -> None:
    many = {f"f{column}": FEATURES[:, column] for column in range(3)}
    source = save(tmp_path, nodes_of(ids, features=None, **many), edges_of(ids), ".csv", split_files)
    graph = load(source, SourceOptions())
    assert graph.original_ids.tolist() == ids
    assert np.array_equal(graph.features, FEATURES)
    assert graph.original_ids[graph.targets].tolist() == [ids[1], ids[2], ids[3]]
    assert graph.labels.tolist() == [1, 0, -1, 2]
    assert graph.split.tolist() == [1, 2, 0, 3]
    assert counts(source, SourceOptions()) == SourceCounts(4, 3, 3, None, "float32")


def test_columns_of_any_name(tmp_path: Path) -> None:
    nodes = pa.table(
        {
            "key": pa.array(WORDS).dictionary_encode(),
            "b": [1, 2, 3, 4],
            "a": pa.array([5, 6, 7, 8], pa.float64()),
            "kind": ["z", "x", None, "x"],
            "unused": [0, 0, 0, 0],
        }
    )
    edges = pa.table({"x": pa.array(WORDS).dictionary_encode(), "y": WORDS[::-1]})
    options = SourceOptions(
        id_column="key", feature_columns=("a", "b"), label_column="kind", source_column="y", target_column="x"
    )
    graph = load(save(tmp_path, nodes, edges), options)
    assert graph.features.tolist() == [[5, 1], [6, 2], [7, 3], [8, 4]]
    assert graph.labels.tolist() == [1, 0, -1, 0]
    assert graph.sources.tolist() == [3, 2, 1, 0]
    assert graph.notes == ("2 classes by name: 'x', 'z'", DRAWN_NOTE)
    assert graph.schema is not None
    assert graph.schema.unused == {"unused": "left out: not among feature_columns"}
    assert (graph.schema.id_column, graph.schema.label_column) == ("key", "kind")
    assert (graph.schema.source_column, graph.schema.target_column) == ("y", "x")
    assert graph.schema.class_names == ("x", "z")


def test_numbers_that_are_not_used_otherwise_are_features(tmp_path: Path) -> None:
    masks = {"train_mask": [True, False, None, False], "val_mask": [0, 1, 0, 0], "test_mask": [False] * 4}
    nodes = nodes_of(NUMBERS, features=None, split=None, p=pa.array([1, 2, 3, 4], pa.float16()), **masks)
    source = save(tmp_path, nodes, edges_of(NUMBERS))
    graph = load(source, SourceOptions())
    assert graph.features.tolist() == [[1], [2], [3], [4]]
    assert graph.features.dtype == np.float16
    assert graph.split.tolist() == [1, 2, 0, 0]
    assert counts(source, SourceOptions()) == SourceCounts(4, 3, 1, None, "float16")


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float16()), pa.list_(pa.int32(), 3)])
def test_lists_of_every_kind_even_sliced(tmp_path: Path, kind: pa.DataType) -> None:
    values = np.arange(12).reshape(4, 3)
    column = pa.chunked_array([pa.array(values.astype(kind.value_type.to_pandas_dtype()).tolist(), kind)])
    answers = pa.array([[0, 1], [1, 1], [None, 0], [-1, 1]], pa.list_(pa.int8()))
    nodes = nodes_of(NUMBERS, features=pa.chunked_array([column.chunk(0)[:1], column.chunk(0)[1:]]), label=answers)
    source = save(tmp_path, nodes, edges_of(NUMBERS))
    graph = load(source, SourceOptions())
    assert np.array_equal(graph.features, values)
    assert (graph.task, graph.labels.tolist()) == ("multi", [[0, 1], [1, 1], [-1, 0], [-1, 1]])
    assert counts(source, SourceOptions()).features == 3


def test_without_an_id_column_rows_are_numbered(tmp_path: Path) -> None:
    graph = load(save(tmp_path, nodes_of([0], id=None), edges_of([0, 1, 2, 3])), SourceOptions())
    assert graph.original_ids.tolist() == [0, 1, 2, 3]
    assert "the nodes have no id column: their ids are their row numbers" in graph.notes


RAGGED = pa.array([[1.0, 2.0], [1.0, 2.0], [1.0], None])
TIMES = pa.array([1, 2, 3, 4], pa.timestamp("s"))
BAD: list[tuple[dict[str, Any], list[Any], dict[str, Any], str]] = [
    ({"id": [1, 2, 2, 9]}, [1, 1, 1, 1], {}, "1 node ids occur more than once, the first is 2"),
    ({"id": pa.array([1, 2, 3, 9], pa.timestamp("s"))}, [1, 2, 3, 9], {}, "must be integers or text, got timestamp"),
    ({"id": [1.0, 2.0, 3.0, 9.0]}, [1, 2, 3, 9], {}, "must be integers or text, got double"),
    ({"id": [True, False, True, True]}, [1, 0, 1, 0], {}, "must be integers or text, got bool"),
    ({"id": [[1], [2], [3], [9]]}, NUMBERS, {}, "must be integers or text, got list"),
    ({"id": [{"a": 1}] * 4}, NUMBERS, {}, "must be integers or text, got struct"),
    ({}, [[70]] * 4, {}, "ends of edges must be integers or text, as ids are, got list"),
    ({}, [{"a": 70}] * 4, {}, "ends of edges must be integers or text, as ids are, got struct"),
    ({}, [True] * 4, {}, "ends of edges must be integers or text, as ids are, got bool"),
    ({"id": [2**53, 2**53 + 1, 3, 4]}, [2.0**53 + 2] * 4, {}, "6 ends of edges name no node"),
    ({"label": [0, 5000, 0, 0]}, NUMBERS, {}, "1 labels .* to 999, the first is 5000 at node -3"),
    ({"features": [[1.0], [2.0], [1e300], [3.0]]}, NUMBERS, {}, "row 3, column 'features', entry 1 is 1e[+]300"),
    ({"id": [1, 2, None, 9]}, [1, 1, 1, 1], {}, "1 nodes have no 'id'"),
    ({}, [70, 9, 4, 4], {}, "4 ends of edges name no node, the first is 4"),
    ({}, [70, 9, None, -3], {}, "row 2 has no 'source': give every edge both ends"),
    ({}, ["70", "x", "9", "-3"], {}, "1 ends of edges name no node, the first is 'x'"),
    ({}, [70.0, 9.5, 9.0, 70.0], {}, "1 ends of edges name no node, the first is 9.5"),
    ({"features": RAGGED}, NUMBERS, {}, "2 lists are ragged, the first in row 3 with 1 values instead of 2"),
    (
        {"features": pa.array([[1.0], [2.0], [None], [3.0]])},
        NUMBERS,
        {},
        "row 3, column 'features', entry 1 is missing",
    ),
    ({"features": pa.array([["a"]] * 4)}, NUMBERS, {}, "has no features .*'features' left out: list<.*> is no kind"),
    ({"features": None}, NUMBERS, {}, "has no features"),
    ({"label": pa.array([1.5, 0, 1, 2])}, NUMBERS, {}, "labels must be integers, got 1.5"),
    ({"split": ["train", "dev", "test", ""]}, NUMBERS, {}, "split 'dev' is unknown"),
    ({"split": [0, 1, 2, 4]}, NUMBERS, {}, "1 split numbers are not 0 to 3, the first is 4"),
    ({}, NUMBERS, {"id_column": "idd"}, "has no column 'idd': did you mean 'id'"),
    ({}, NUMBERS, {"feature_columns": ("featurs",)}, "did you mean 'features'"),
    ({}, NUMBERS, {"label_column": "lable"}, "did you mean 'label'"),
    ({}, NUMBERS, {"source_column": "sorce"}, "did you mean 'source'"),
    (
        {"t": pa.array([1, 2, 3, 4], pa.timestamp("s"))},
        NUMBERS,
        {"feature_columns": ("t",)},
        "chosen as a feature and ti",
    ),
    (
        {"t": pa.array([1, 2, 3, 4], pa.timestamp("s"))},
        NUMBERS,
        {"columns": ("t=category",)},
        "cannot be used as a cat",
    ),
    ({}, NUMBERS, {"columns": ("label=number",)}, "column 'label' is no feature"),
    ({}, NUMBERS, {"columns": ("lable=number",)}, "has no column 'lable': did you mean 'label'"),
    ({"label": pa.array([None] * 4, pa.int64())}, NUMBERS, {}, "all labels are missing in column 'label'"),
]


@pytest.mark.parametrize(("nodes", "edges", "options", "message"), BAD)
def test_bad_tables_are_refused_in_one_line(
    tmp_path: Path, nodes: dict[str, Any], edges: list[Any], options: dict[str, Any], message: str
) -> None:
    source = save(tmp_path, nodes_of(NUMBERS, **nodes), edges_of(edges))
    with pytest.raises(PartitionError, match=message) as caught:
        load(source, SourceOptions(**options))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("late", [False, True])
def test_one_cell_that_is_no_number_is_named_or_left_out_by_choice(tmp_path: Path, suffix: str, late: bool) -> None:
    rows = 100_000 if late else 30
    cells = [str(row / 4) for row in range(rows)]
    cells[rows - 3] = "seven"
    nodes = pa.table({"id": range(rows), "a": cells, "b": range(rows), "name": [f"n{row}" for row in range(rows)]})
    source = save(tmp_path, nodes, edges_of([0, 1, 2, 3]), suffix)
    with pytest.raises(PartitionError, match=rf"nodes\{suffix}: row {rows - 2}, column 'a' is 'seven'"):
        load(source, SourceOptions())
    with pytest.raises(PartitionError, match=rf"row {rows - 2}, column 'a' is 'seven', no number"):
        load(source, SourceOptions(feature_columns=("a", "b"), columns=("a=number",)))
    with pytest.raises(PartitionError, match=rf"row {rows - 2}, column 'a' is 'seven', "):
        load(source, SourceOptions(feature_columns=("a", "b")))
    graph = load(source, SourceOptions(feature_columns=("b",)))
    assert graph.features[:, 0].tolist() == list(range(rows))
    assert graph.schema is not None
    assert list(graph.schema.unused) == ["a", "name"]


@pytest.mark.parametrize(("cell", "shown"), [("inf", "inf"), ("-inf", "-inf"), ("1e39", r"1e\+39")])
def test_a_cell_that_is_not_finite_is_named(tmp_path: Path, cell: str, shown: str) -> None:
    nodes = pa.table({"id": range(30), "a": [cell if row == 17 else str(row) for row in range(30)], "b": [1] * 30})
    source = save(tmp_path, nodes, edges_of([0, 1, 2, 3]), ".csv")
    with pytest.raises(PartitionError, match=rf"nodes.csv: row 18, column 'a' is {shown}: features must be finite"):
        load(source, SourceOptions())


def test_a_row_of_many_files_is_named_by_its_own(tmp_path: Path) -> None:
    nodes = nodes_of(NUMBERS, features=None, x=[1.0, 2.0, 3.0, float("inf")])
    with pytest.raises(PartitionError, match=r"nodes.parquet/part-1.parquet: row 3, column 'x' is inf"):
        load(save(tmp_path, nodes, edges_of(NUMBERS), split_files=True), SourceOptions())


def test_words_of_training_nodes_are_categories_and_others_are_other(tmp_path: Path) -> None:
    nodes = nodes_of(NUMBERS, features=None, x=[1, 2, 3, 4], word=["7", "a", "b", None], code=["1", "2", "3", "4"])
    graph = load(save(tmp_path, nodes, edges_of(NUMBERS)), SourceOptions())
    assert graph.schema is not None
    assert [(column.name, column.categories) for column in graph.schema.columns] == [
        ("x", ()),
        ("word", ("7",)),  # the only training node has this one
        ("code", ("1",)),
    ]
    assert graph.features.tolist() == [[1, 1, 1], [2, 0, 0], [3, 0, 0], [4, 0, 0]]


def test_columns_of_the_same_name_are_refused_where_they_are_used(tmp_path: Path) -> None:
    nodes, edges = nodes_of(NUMBERS, features=None, x=[1, 2, 3, 4]), edges_of(NUMBERS)
    for table, name in ((nodes, "id"), (nodes, "x"), (nodes, "label"), (edges, "source")):
        twice = table.append_column(name, table[name])
        given = (twice, edges) if table is nodes else (nodes, twice)
        for suffix in (".csv", ".parquet"):
            folder = tmp_path / f"{name}{suffix}"
            folder.mkdir()
            with pytest.raises(PartitionError, match=f"has two columns called '{name}': rename one of them"):
                load(save(folder, *given, suffix), SourceOptions())


def test_a_long_name_does_not_make_the_others_long(tmp_path: Path) -> None:
    ids = [*WORDS[:3], "x" * 100_000]
    graph = load(save(tmp_path, nodes_of(ids), edges_of(ids)), SourceOptions())
    assert graph.original_ids.tolist() == ids
    assert graph.original_ids.nbytes < 100


def test_a_small_file_cannot_ask_for_much_memory(tmp_path: Path) -> None:
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), ["x" * 2**20])
    source = save(tmp_path, pa.table({"id": repeated, "x": range(2000)}), edges_of(WORDS))
    with pytest.raises(PartitionError, match=r"nodes.parquet would take 2.0 GiB of memory"):
        load(source, SourceOptions())


def test_an_id_of_a_csv_that_is_no_integer_is_named(tmp_path: Path) -> None:
    nodes = nodes_of(NUMBERS, features=None, x=[1, 2, 3, 4])
    with pytest.raises(PartitionError, match="3 ends of edges name no node, the first is 'x9'"):
        load(save(tmp_path, nodes, edges_of(["70", "-3", "x9", "9"]), ".csv"), SourceOptions())


def test_a_csv_may_turn_from_integers_to_fractions_after_a_megabyte(tmp_path: Path) -> None:
    rows = 200_000
    values = np.arange(rows) % 100
    nodes = pa.table({"id": np.arange(rows), "x": [*map(str, values[:-1]), "0.5"], "label": values})
    graph = load(save(tmp_path, nodes, edges_of([0, 1, 2, 3]), ".csv"), SourceOptions())
    assert graph.features[-2:, 0].tolist() == [98, 0.5]


def test_missing_and_damaged_files_are_refused(tmp_path: Path) -> None:
    source = save(tmp_path, nodes_of(NUMBERS), edges_of(NUMBERS))
    with pytest.raises(PartitionError, match=r"edges.parquet alone is not a graph: name a folder that holds nodes"):
        load(f"{source}/edges.parquet", SourceOptions())
    whole = (tmp_path / "nodes.parquet").read_bytes()
    (tmp_path / "nodes.parquet").write_bytes(whole[: len(whole) // 2])
    for read in (load, counts):
        with pytest.raises(PartitionError, match=r"nodes.parquet cannot be read"):
            read(source, SourceOptions())
    (tmp_path / "nodes.parquet").unlink()
    with pytest.raises(PartitionError, match=r"has no nodes.parquet or nodes.csv, and no folder nodes"):
        load(source, SourceOptions())
    (tmp_path / "nodes.csv").write_text("")
    with pytest.raises(PartitionError, match=r"nodes.csv cannot be read"):
        load(source, SourceOptions())
    (tmp_path / "nodes.csv").write_text("id,x\n1,2\n2,3,4\n")
    with pytest.raises(PartitionError, match=r"nodes.csv cannot be read"):
        load(source, SourceOptions())
    (tmp_path / "nodes.csv").unlink()
    write(nodes_of(NUMBERS).slice(0, 0), tmp_path / "nodes.parquet")
    with pytest.raises(PartitionError, match="has no nodes"):
        load(source, SourceOptions())
