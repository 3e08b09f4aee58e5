"""Small graphs in every kind of file, whole and with odd arrays, columns and cells."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from hypothesis import strategies as st

from tests.partitioning.fuzzing import ODD_NUMBERS

NODES = 9


def whole_arrays() -> dict[str, Any]:
    """A small graph that an .npz may hold."""
    return {
        "edge_index": np.array([[0, 1, 2, 5], [1, 2, 0, 8]]),
        "feat": np.arange(NODES * 2, dtype=np.float32).reshape(NODES, 2),
        "label": np.arange(NODES) % 3,
        "train_idx": np.array([0, 1, 2]),
        "valid_idx": np.array([3]),
        "test_idx": np.array([4, 5]),
        "key": np.arange(NODES) * 10,
    }


def csr_arrays() -> dict[str, Any]:
    """The same with sparse features and masks."""
    usual = {key: value for key, value in whole_arrays().items() if key in ("edge_index", "label", "key")}
    masks = {f"{word}_mask": np.arange(NODES) % 3 == place for place, word in enumerate(("train", "val", "test"))}
    parts = {
        "feat_indptr": np.arange(NODES + 1),
        "feat_indices": np.arange(NODES) % 40,
        "feat_data": np.ones(NODES, np.float32),
        "feat_shape": np.array([NODES, 40]),
    }
    return {**usual, **masks, **parts}


def npz_bytes(arrays: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


INTEGERS, FLOATS = ["i1", "i2", "i8", "u1", "u4", "u8", ">i8"], ["f2", "f4", "f8", "f16", ">f4"]
DTYPES = st.sampled_from([*INTEGERS, *FLOATS, "?", "c8", "U3", "U0", "S4", "V8", "V0", "M8[s]", "m8[s]", "O"])
SHAPES = st.lists(st.integers(0, 11), max_size=3).map(tuple)


@st.composite
def odd_arrays(draw: st.DrawFn) -> dict[str, Any]:
    """Arrays of the right names with other types, shapes and values."""
    arrays = dict(draw(st.sampled_from([whole_arrays(), csr_arrays()])))
    for key in draw(st.lists(st.sampled_from(sorted(arrays)), min_size=1, max_size=3, unique=True)):
        kind = draw(st.sampled_from(["drop", "cast", "shape", "value", "new"]))
        if kind == "drop":
            del arrays[key]
        elif kind == "cast":
            arrays[key] = _cast(arrays[key], draw(DTYPES))
        elif kind == "shape":
            arrays[key] = np.resize(arrays[key], draw(SHAPES))
        elif kind == "value":
            values = arrays[key].astype(draw(st.sampled_from(["i8", "f8", "u8"])))
            odd = draw(st.one_of(ODD_NUMBERS, st.sampled_from([np.nan, np.inf, 1e300, 0.5, -0.0])))
            with np.errstate(all="ignore"):
                flat = np.full(1, odd).astype(values.dtype)
            values.flat[draw(st.integers(0, max(values.size - 1, 0)))] = flat[0]
            arrays[key] = values
        else:
            arrays[key] = np.zeros(draw(SHAPES), draw(DTYPES))
    return arrays


def _cast(values: Any, dtype: str) -> Any:
    try:
        with np.errstate(all="ignore"):
            return values.astype(dtype)
    except (TypeError, ValueError):
        return np.zeros(values.shape, dtype)


HEADERS = st.sampled_from(
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 2), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-9, -2), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9, 2.0), }",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (9, 2), }",
        "{'descr': '<U1000000000', 'fortran_order': False, 'shape': (9,), }",
        "{'descr': [('a', '<f4'), ('b', '<f4')], 'fortran_order': False, 'shape': (9,), }",
        "{'descr': '<f4', 'shape': (9, 2), }",
        "(" * 300,
        "[" * 9000,
        "{'descr': 'a', 'fortran_order': False, 'shape': (9, 2), }",
        "9" * 5000,
        "\0",
    ]
)


def with_header(key: str, header: str) -> bytes:
    """The .npz with another header before the numbers of one array."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, values in whole_arrays().items():
            text = header.encode() if name == key else None
            if text is None:
                member = io.BytesIO()
                np.save(member, values)
                archive.writestr(f"{name}.npy", member.getvalue())
            else:
                start = b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little")
                archive.writestr(f"{name}.npy", start + text + values.tobytes())
    return content.getvalue()


CELLS = st.sampled_from(
    ["", "seven", "inf", "nan", "1e300", "NaN", "-1", "2", "0x1", "1,2", '"', "é", "\0", "2020-01-01"]
)
TYPES: list[pa.DataType] = [
    *(pa.int8(), pa.int64(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.string(), pa.large_string()),
    *(pa.binary(), pa.date32(), pa.timestamp("us"), pa.time64("us"), pa.duration("s"), pa.decimal128(9, 2), pa.null()),
    *(pa.list_(pa.int64()), pa.list_(pa.float32(), 2), pa.large_list(pa.string()), pa.list_(pa.list_(pa.int8()))),
    *(pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64()), pa.dictionary(pa.int8(), pa.string())),
]
NAMES = ("id", "label", "split", "train_mask", "features", "x", "y", "source", "target", "")


def whole_tables() -> tuple[pa.Table, pa.Table]:
    nodes = pa.table(
        {
            "id": list(range(10, 10 + NODES)),
            "x": [float(row) for row in range(NODES)],
            "name": [f"n{row}" for row in range(NODES)],
            "label": [row % 3 for row in range(NODES)],
            "split": ["train", "val", "test"] * 3,
        }
    )
    return nodes, pa.table({"source": [10, 11, 12], "target": [11, 12, 13]})


@st.composite
def odd_tables(draw: st.DrawFn) -> tuple[pa.Table, pa.Table]:
    """The tables with columns of other types, missing, null or twice there."""
    made = list(whole_tables())
    for _ in range(draw(st.integers(1, 3))):
        which = draw(st.integers(0, 1))
        table = made[which]
        name = draw(st.sampled_from([*table.column_names, *NAMES]))
        place = table.schema.get_field_index(name)
        kind = draw(st.sampled_from(["drop", "again", "type", "null", "empty"]))
        if kind == "empty":
            table = table.slice(0, draw(st.integers(0, 1)))
        elif kind == "drop":
            table = table.remove_column(place) if place >= 0 else table
        else:
            column = draw(odd_columns(table.num_rows)) if kind != "null" else pa.nulls(table.num_rows)
            again = kind == "again" or place < 0
            table = table.append_column(name, column) if again else table.set_column(place, name, column)
        made[which] = table
    return made[0], made[1]


@st.composite
def odd_columns_of(draw: st.DrawFn, table: pa.Table) -> pa.Table:
    """A table with one to three columns of other types, gone or twice there."""
    for name in draw(st.lists(st.sampled_from([*table.column_names, "x"]), min_size=1, max_size=3)):
        place, kind = table.schema.get_field_index(name), draw(st.sampled_from(["drop", "again", "type"]))
        column = draw(odd_columns(table.num_rows))
        if kind == "drop" and place >= 0:
            table = table.remove_column(place)
        elif kind == "type" and place >= 0:
            table = table.set_column(place, name, column)
        else:
            table = table.append_column(name, column)
    return table


@st.composite
def odd_columns(draw: st.DrawFn, rows: int) -> Any:
    kind = draw(st.sampled_from(TYPES))
    values = draw(st.lists(_values(kind), min_size=rows, max_size=rows))
    return pa.array(values, kind)


def _values(kind: pa.DataType) -> Any:
    """Values that such a column may hold, mostly small ones."""
    small = st.one_of(st.integers(0, 12), st.none())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return st.one_of(CELLS, st.none(), st.sampled_from(["10", "11", "12"]))
    if pa.types.is_floating(kind):
        values = st.sampled_from([10.0, 11.0, 0.5, float("nan"), float("inf"), -1.0])
        return values.map(np.float16) if pa.types.is_float16(kind) else st.one_of(values, st.just(1e300))
    if pa.types.is_int64(kind) or pa.types.is_uint64(kind):
        return st.one_of(small, st.sampled_from([2**53 + 1, 2**63 - 1]))
    if pa.types.is_fixed_size_list(kind):
        return st.one_of(st.lists(st.integers(0, 3), min_size=2, max_size=2), st.none())
    if pa.types.is_map(kind):
        return st.one_of(st.just([("k", 1)]), st.none())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return st.one_of(st.lists(_values(kind.value_type), max_size=2), st.none())
    others = {"struct": {"a": 1}, "bool": True, "binary": b"10", "null": None}
    found = next((value for word, value in others.items() if str(kind).startswith(word)), 1)
    return st.one_of(st.just(found), st.none()) if not pa.types.is_null(kind) else st.none()


def save_tables(folder: Path, nodes: pa.Table, edges: pa.Table) -> None:
    for name, table in (("nodes", nodes), ("edges", edges)):
        pq.write_table(table, folder / f"{name}.parquet")


def csv_bytes() -> tuple[bytes, bytes]:
    made = []
    for table in whole_tables():
        content = io.BytesIO()
        pyarrow.csv.write_csv(table, content)
        made.append(content.getvalue())
    return made[0], made[1]


@st.composite
def odd_csv(draw: st.DrawFn, whole: bytes) -> bytes:
    """A CSV with other cells."""
    lines = [line.split(",") for line in whole.decode().splitlines()]
    for _ in range(draw(st.integers(1, 4))):
        row = draw(st.integers(0, len(lines) - 1))
        if lines[row]:
            lines[row][draw(st.integers(0, len(lines[row]) - 1))] = draw(CELLS)
    return "\n".join(",".join(line) for line in lines).encode()
