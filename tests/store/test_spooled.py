"""A table that passes in batches into a file is the table that is read at once."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from nfdist.errors import PartitionError
from nfdist.memory import private_bytes
from nfdist.scratch import Scratch
from nfdist.store.table_files import open_table

TEXT = "id,late,words,date,later,flag,number\n" + "".join(
    f"{row:03},{row if row < 70_000 else row + 0.5},{'NA' if row % 7 else 'red'},2026-01-{row % 28 + 1:02},"
    f"{'2026-01-01' if row < 71_000 else 'never'},"
    f"{'true' if row % 3 else ''},{row / 4}\n"
    for row in range(72_000)
)


def write(folder: Path, kind: str) -> Path:
    """Files whose columns have other types in each, of which some show only far down."""
    folder.mkdir()
    if kind == "csv":
        (folder / "0.csv").write_text(TEXT)
        (folder / "1.csv").write_text("id,late,words,date,later,flag,number\nx,1,blue,2026-01-01,soon,true,7\n")
    else:
        words = pa.array(["a", "b", None, "a"]).dictionary_encode()
        for name, late in (("0", pa.array([1, 2, 3, None])), ("1", pa.array([0.5, 1.5, None, 2.0]))):
            lists = pa.array([[1.0, 2.0], [3.0, 4.0], None, [5.0, 6.0]], pa.list_(pa.float32()))
            (folder / f"part={name}").mkdir()
            pq.write_table(pa.table({"late": late, "words": words, "lists": lists}), folder / f"part={name}/x.parquet")
    return folder


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_batches_are_the_whole(tmp_path: Path, kind: str) -> None:
    table = open_table(write(tmp_path / "nodes", kind))
    names = list(table.schema.names)
    types: Any = {"id": pa.string()}
    whole = table.read(names, types, ["words"])
    before = private_bytes()
    spooled = table.read(names, types, ["words"], Scratch(0, tmp_path))
    assert private_bytes() - before < 1 << 26
    assert spooled.counts == whole.counts
    for name in names:
        kinds = [rows[name].type for rows in (whole, spooled)]
        plain = [one.value_type if pa.types.is_dictionary(one) else one for one in kinds]
        assert plain[0] == plain[1], name
        assert spooled[name].to_pylist() == whole[name].to_pylist(), name
    assert spooled.slice(5, 2).place(1) == whole.place(6)
    assert [path.name for path in tmp_path.iterdir()] == ["nodes"]


def test_a_wrong_cell_is_refused_alike(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,x\n" + "".join(f"{row},1.5\n" for row in range(200_000)) + "7,many\n")
    table, messages = open_table(tmp_path / "nodes.csv"), []
    for scratch in (None, Scratch(0, tmp_path)):
        with pytest.raises(PartitionError) as caught:
            table.read(["id", "x"], {"id": pa.string(), "x": pa.float64()}, [], scratch)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "row 200001, column 'x' is 'many', no number" in messages[0]


def test_large_pages_of_parquet_are_not_held(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random(4 << 20)
    pq.write_table(pa.table({"x": values}), tmp_path / "nodes.parquet", row_group_size=len(values))
    before = private_bytes()
    rows = open_table(tmp_path / "nodes.parquet").read(["x"], scratch=Scratch(0, tmp_path))
    del values
    assert private_bytes() - before < 16 << 20
    assert len(rows) == 4 << 20
