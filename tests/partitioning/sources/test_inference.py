"""What becomes of a column is told and can be said, and depends on training nodes alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from nfdist.cli.main import main
from nfdist.errors import ConfigError, PartitionError
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.sources.inference import MANY_MISSING, MOST_CATEGORIES, TEXT_WIDTH
from nfdist.store.schema import Schema
from nfdist.store.store import Store
from tests import tables


def build(folder: Path, nodes: pd.DataFrame | None = None, **options: Any) -> Store:
    nodes = tables.machines() if nodes is None else nodes
    return tables.build(tables.save(folder / "tables", nodes), folder / "graph", **options)


def uses(schema: Schema) -> dict[str, str]:
    return {column.name: column.use for column in schema.columns}


def test_columns_of_every_kind_are_used_as_their_types_and_values_say(tmp_path: Path) -> None:
    schema = build(tmp_path).manifest.schema
    assert uses(schema) == {
        "hours": "number and whether missing",
        "load": "number",
        "leased": "boolean",
        "site": "category of 3",
        "line": "number",
        "note": f"text of {TEXT_WIDTH}",
        "spectrum": "list of 3",
    }
    assert list(schema.unused) == ["installed"]
    assert schema.unused["installed"].startswith("left out: timestamp[")
    assert schema.columns[3].categories == ("Lyon", "Oslo", "Porto")
    assert [column.missing for column in schema.columns[:3]] == [
        int(count) for count in tables.machines()[["hours", "load", "leased"]].isna().sum()
    ]
    assert (schema.id_column, schema.label_column) == ("machine", "condition")
    assert schema.class_names == ("failing", "good", "worn")


def test_what_is_said_column_by_column_wins(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    tables.save(tmp_path / "tables", tables.machines())
    recipe.write_text(
        f'source = "{tmp_path / "tables"}"\nparts = 2\nmethod = "random"\nid_column = "machine"\n'
        'label_column = "condition"\n[columns.line]\nas = "category"\n[columns.note]\nas = "ignore"\n'
        '[columns.site]\nas = "text"\n'
    )
    words = ["partition", str(recipe), "--out", str(tmp_path / "graph"), "--column", "hours=ignore"]
    assert main(words) == 0
    schema = Store.open(tmp_path / "graph").manifest.schema
    assert schema.columns[2 + 1].categories == ("10", "20", "30")
    assert uses(schema)["site"] == f"text of {TEXT_WIDTH}"
    assert set(schema.unused) == {"note", "hours", "installed"}


@pytest.mark.parametrize("columns", ["age", 3, {"age": 3}, {"age": {"as": 1}}, {"age": {"use": "number"}}, ["age"]])
def test_what_is_said_in_other_ways_is_refused(columns: Any) -> None:
    with pytest.raises(ConfigError, match="column"):
        Recipe.build("tables", {"parts": 1, "out": "graph", "columns": columns})


def test_the_table_is_printed_before_anything_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(tmp_path)
    told = capsys.readouterr().err
    assert told.index("column     type") < told.index("hours") < told.index("left out: timestamp[")
    assert "number and whether missing" in told
    assert "Lyon, Oslo, Porto" in told
    assert "3 classes by name: 'failing', 'good', 'worn'" in told
    assert main(["inspect", str(tmp_path / "graph")]) == 0
    shown = capsys.readouterr().out
    assert "number and whether missing" in shown
    assert "failing: " in shown


def test_indexes_row_numbers_and_copies_of_ids_are_left_out(tmp_path: Path) -> None:
    nodes = tables.machines()[["machine", "load", "condition"]]
    count = np.arange(len(nodes))
    extra = {"__index_level_0__": count[::-1], "Unnamed: 0": count[::-1], "row": count, "number": count + 1}
    extra |= {"serial": nodes["machine"], "size": count * 2}
    schema = build(tmp_path, nodes.assign(**extra)).manifest.schema
    assert uses(schema) == {"load": "number", "size": "number"}
    assert schema.unused == {
        "__index_level_0__": "left out: an index that pandas wrote",
        "Unnamed: 0": "left out: an index that pandas wrote",
        "row": "left out: the number of the row",
        "number": "left out: the number of the row",
        "serial": "left out: a copy of the ids",
    }
    chosen = build(tmp_path / "chosen", nodes.assign(**extra), feature_columns=["row"]).manifest.schema
    assert uses(chosen) == {"row": "number"}


def test_a_column_without_a_name_is_left_out(tmp_path: Path) -> None:
    nodes = tables.machines()[["machine", "load", "condition"]]
    folder = tables.save(tmp_path / "tables", nodes, ".csv")
    nodes.to_csv(folder / "nodes.csv")  # with pandas' index
    schema = tables.build(folder, tmp_path / "graph").manifest.schema
    assert uses(schema) == {"load": "number"}
    assert list(schema.unused) == [""]


def test_words_that_cannot_be_decoded_are_one_line(tmp_path: Path) -> None:
    nodes = tables.machines()[["machine", "load", "condition"]]
    folder = tables.save(tmp_path / "tables", nodes)
    table = pa.Table.from_pandas(nodes, preserve_index=False)
    words = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")]
    )
    table = table.append_column("word", words.take(pa.array([0, 1] * (len(nodes) // 2))))
    pq.write_table(table, folder / "nodes.parquet")
    with pytest.raises(PartitionError, match=r"nodes.parquet cannot be read .*utf-8"):
        tables.build(folder, tmp_path / "graph")


def test_words_are_categories_texts_names_or_too_many(tmp_path: Path) -> None:
    nodes, count = tables.machines(3000)[["machine", "load", "condition"]], 3000
    words = {
        "few": [f"w{number % 9}" for number in range(count)],
        "spoken": [f"a text of words {number}" for number in range(count)],
        "codes": [str(number % 50) for number in range(count)],
    }
    schema = build(tmp_path, nodes.assign(**words)).manifest.schema
    assert uses(schema)["few"] == "category of 9"
    assert uses(schema)["spoken"] == f"text of {TEXT_WIDTH}"
    assert uses(schema)["codes"] == "category of 50"
    names = nodes[:200].assign(name=[f"n{number}" for number in range(200)])
    left = build(tmp_path / "names", names, split="random:1/0/0").manifest.schema.unused
    assert left == {"name": "left out: 200 different words in 200 training nodes"}
    many = nodes.assign(name=[f"n{number}" for number in range(count)])
    message = rf"column 'name' has 3,000 different values, too many for categories \(at most {MOST_CATEGORIES:,}\)"
    with pytest.raises(PartitionError, match=message):
        build(tmp_path / "many", many, split="random:1/0/0")
    assert "name" in build(tmp_path / "ignored", many, columns={"name": "ignore"}).manifest.schema.unused


def test_many_missing_is_a_share_of_training_nodes(tmp_path: Path) -> None:
    nodes = tables.machines()[["machine", "load", "condition"]].assign(split="train")
    gaps = np.ceil(MANY_MISSING * len(nodes)).astype(int)
    for name, missing in (("few", gaps - 1), ("many", gaps)):
        nodes[name] = np.where(np.arange(len(nodes)) < missing, np.nan, 1.0)
    assert {column.name: column.indicator for column in build(tmp_path, nodes).manifest.schema.columns} == {
        "load": False,
        "few": False,
        "many": True,
    }


def test_a_value_of_a_test_node_changes_no_other_nodes_features(tmp_path: Path) -> None:
    nodes = tables.machines()
    before = build(tmp_path / "before", nodes)
    everyone = torch.arange(before.num_nodes)
    row = int((before.split(everyone) == 3).nonzero()[0])
    name = before.original_ids(torch.tensor([row]))[0]
    place = nodes.index[nodes["machine"] == name][0]
    changes = {"hours": 1e6, "load": np.nan, "site": "Nowhere", "note": "new words here", "line": -5, "leased": True}
    for column, value in changes.items():
        nodes.loc[place, column] = value
    after = build(tmp_path / "after", nodes)
    rows = [store.take(everyone).to_dense() for store in (before, after)]
    same = torch.isclose(rows[0], rows[1], rtol=0, atol=0, equal_nan=True).all(1)
    assert (~same).nonzero()[:, 0].tolist() == [row]
    constants = [
        [(column.name, column.width, column.categories, column.indicator) for column in store.manifest.schema.columns]
        for store in (before, after)
    ]
    assert constants[0] == constants[1]


@pytest.mark.parametrize("option", [{"normalize_features": "row"}, {"knn": 3}])
def test_gaps_are_refused_where_there_is_no_model_to_fill_them(tmp_path: Path, option: dict[str, Any]) -> None:
    with pytest.raises(PartitionError, match=r"column 'hours' has \d+ gaps, and .*: fill them"):
        build(tmp_path, **option)
