"""A CSV's cells are what they should be, or the first that is not is named by its file, row and column."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nfdist.errors import PartitionError
from nfdist.store import csv_files

MANY = 200_000  # rows, more than Arrow takes at once


def save(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("row", [1, 3, MANY])
@pytest.mark.parametrize("kind", [None, pa.string()])
def test_a_cell_that_is_not_utf8_is_named_wherever_it_is(tmp_path: Path, row: int, kind: Any) -> None:
    cells = ["plain,0"] * MANY
    cells[row - 1] = "café,1"
    text = "\n".join(["drink,n", *cells])
    types = None if kind is None else {"drink": kind}
    good = csv_files.read_columns(save(tmp_path / "a.csv", text), ["drink"], types)
    assert good["drink"][row - 1].as_py() == "café"
    file = save(tmp_path / "b.csv", text, "latin-1")
    wanted = rf"b\.csv: row {row}, column 'drink' is not UTF-8: save the file as UTF-8"
    with pytest.raises(PartitionError, match=wanted):
        csv_files.read_columns(file, ["n", "drink"], types)
    with pytest.raises(PartitionError, match=wanted):
        list(csv_files.read_text(file, ["drink"]))
    as_number = wanted if row == 1 else "row 1, column 'drink' is 'plain', no number"
    with pytest.raises(PartitionError, match=as_number):
        csv_files.read_columns(file, ["drink"], {"drink": pa.float64()})
    assert len(csv_files.read_columns(file, ["n"])) == MANY  # columns that nobody asks for spoil nothing


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_names_of_columns_that_are_not_utf8_are_refused(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(PartitionError, match=r"not UTF-8: save the file as UTF-8"):
        csv_files.read_schema(save(tmp_path / "a.csv", "id,né\n1,2\n", encoding))


@pytest.mark.parametrize(
    ("cell", "kind", "message"),
    [
        ("x", pa.float64(), r"row 2, column 'v' is 'x', no number: repair it"),
        ("yes", pa.bool_(), r"row 2, column 'v' is 'yes', neither true nor false: repair it"),
        ("1.5", pa.int64(), r"row 2, column 'v' is '1.5', no integer"),
        ('"two\nlines"', pa.float64(), r"row 2, column 'v' is 'two\\nlines', no number"),
    ],
)
def test_a_cell_of_another_type_is_named(tmp_path: Path, cell: str, kind: Any, message: str) -> None:
    file = save(tmp_path / "a.csv", f'v,"a\nb"\n1,2\n{cell},3\n0,4\n')
    with pytest.raises(PartitionError, match=message) as caught:
        csv_files.read_columns(file, ["a\nb", "v"], {"v": kind, "a\nb": pa.float64()})
    assert "\n" not in str(caught.value)
