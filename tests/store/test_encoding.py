"""Rows of features follow from a schema's constants alone, whatever rows, files and types they come in."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.feature_extraction.text import HashingVectorizer

from nfdist.errors import PartitionError
from nfdist.store.encoding import category_values, encode, missing_values
from nfdist.store.schema import FeatureColumn
from nfdist.store.table_files import Rows

NUMBER = FeatureColumn("n", "double", "number", 2, indicator=True)
BOOLEAN = FeatureColumn("b", "bool", "boolean", 1)
CATEGORY = FeatureColumn("c", "string", "category", 2, categories=("x", "y"))
LIST = FeatureColumn("l", "list<item: float>", "list", 2)
TEXT = FeatureColumn("t", "string", "text", 16)
COLUMNS = (NUMBER, BOOLEAN, CATEGORY, LIST, TEXT)
TABLE = {
    "n": pa.array([1.5, None, float("nan")]),
    "b": pa.array([True, None, False]),
    "c": ["y", "z", None],
    "l": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float64())),
    "t": ["big red big", None, "blue"],
}


def rows_of(**changes: Any) -> Rows:
    table = pa.table({**TABLE, **changes})
    return Rows(table, ((Path("a.parquet"), 1), (Path("b.parquet"), 2)))


def expected() -> Any:
    words = HashingVectorizer(n_features=16, alternate_sign=False, norm=None).transform(["big red big", "", "blue"])
    gap = np.nan
    plain = [[1.5, 0, 1, 0, 1, 1, 2], [gap, 1, gap, 0, 0, 3, 4], [gap, 1, 0, 0, 0, 5, 6]]
    return np.hstack([np.array(plain), words.toarray()])


@pytest.mark.parametrize("sparse", [False, True])
def test_every_encoding_is_what_it_says(sparse: bool) -> None:
    features = encode(COLUMNS, rows_of(), np.float32, sparse)
    assert scipy.sparse.issparse(features) == sparse
    assert features.dtype == np.float32
    assert np.array_equal(features.toarray() if sparse else features, expected(), equal_nan=True)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_row_is_encoded_as_if_it_were_alone(sparse: bool) -> None:
    whole = encode(COLUMNS, rows_of(), np.float32, sparse)
    for row in range(3):
        alone = Rows(rows_of().table.slice(row, 1), ((Path("one"), 1),))
        one = encode(COLUMNS, alone, np.float32, sparse)
        mine, wanted = (part.toarray() if sparse else part for part in (one, whole[row : row + 1]))
        assert np.array_equal(mine, wanted, equal_nan=True)


def test_categories_are_the_same_in_every_type_of_file() -> None:
    for values in (pa.array([10, None, 7]), pa.array([10.0, None, 7.0]), pa.array(["10", None, "7"])):
        assert category_values(pa.chunked_array([values])).to_pylist() == ["10", None, "7"]
    halves = pa.chunked_array([pa.array([0.5, float("nan"), 7.0])])
    assert category_values(halves).to_pylist() == ["0.5", None, "7"]
    repeated = pa.chunked_array([pa.array(["b", "a", "b"]).dictionary_encode()])
    assert category_values(repeated).to_pylist() == ["b", "a", "b"]


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        (pa.array([1, None]), [False, True]),
        (pa.array([float("nan"), 1.0]), [True, False]),
        (pa.array(["", "a", None]), [True, False, True]),
        (pa.array([[1], None]), [False, True]),
        (pa.nulls(2), [True, True]),
    ],
)
def test_what_counts_as_missing(values: pa.Array, missing: list[bool]) -> None:
    assert missing_values(pa.chunked_array([values])).tolist() == missing


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": ["a", "b", "c"]}, "a.parquet: column 'n' must be numbers, got string: convert it"),
        ({"n": [1.0, 2.0, float("inf")]}, "b.parquet: row 2, column 'n' is inf: features must be finite"),
        ({"n": [1.0, -1e300, 2.0]}, r"b.parquet: row 1, column 'n' is -1e\+300: features must be finite"),
        ({"b": [0, 1, 2]}, "b.parquet: row 2, column 'b' is 2: give 0 or 1"),
        ({"c": [[1], [2], [3]]}, "column 'c' must be categories, got list"),
        ({"t": [1, 2, 3]}, "column 't' must be text, got int64"),
        ({"l": [1, 2, 3]}, "column 'l' must be lists of numbers, got int64"),
        ({"l": [[1, 2], [1], [1, 2]]}, "column 'l': 1 lists are ragged, the first in row 2 with 1 values instead of 2"),
        ({"l": [[1.0, 2.0], [1.0, None], [1.0, 2.0]]}, "b.parquet: row 1, column 'l', entry 2 is missing"),
    ],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_what_a_column_cannot_be_is_one_line(changes: dict[str, Any], message: str, sparse: bool) -> None:
    with pytest.raises(PartitionError, match=message):
        encode(COLUMNS, rows_of(**changes), np.float32, sparse)
