"""Columns of numbers are views of what Arrow holds, slices included, and nothing else is taken for one."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from nfdist.store.arrow_files import as_array, as_tensor

NUMBERS = np.arange(24)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("piece", [slice(0, 24), slice(5, 17), slice(7, 7)])
def test_a_column_is_the_numbers_it_holds(dtype: str, piece: slice) -> None:
    column = pa.array(NUMBERS.astype(dtype))[piece]
    assert as_array(column).dtype == dtype
    assert as_array(column).tolist() == NUMBERS[piece].tolist()


@pytest.mark.parametrize("piece", [slice(0, 8), slice(3, 6), slice(2, 2)])
def test_lists_of_fixed_size_are_rows(piece: slice) -> None:
    column = pa.FixedSizeListArray.from_arrays(pa.array(NUMBERS.astype("float32")), 3)[piece]
    assert as_tensor(column).tolist() == NUMBERS.reshape(8, 3)[piece].tolist()


@pytest.mark.parametrize("values", [["a", "b"], [True, False]])
def test_text_and_truth_values_are_no_numbers(values: list[object]) -> None:
    with pytest.raises(TypeError, match="no type of numbers"):
        as_array(pa.array(values))


def test_pandas_is_not_imported_for_it() -> None:
    lines = (
        "import sys, pyarrow as pa",
        "from nfdist.store.arrow_files import as_tensor",
        "as_tensor(pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(bytes(24))]))",
        "sys.exit('pandas' in sys.modules)",
    )
    assert subprocess.run([sys.executable, "-c", "; ".join(lines)], timeout=120).returncode == 0
