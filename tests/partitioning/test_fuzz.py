"""Whatever is in a file that a user hands in: a graph, or one line; never a traceback, a crash or a second line."""

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import strategies as st

from nfdist.evaluation.new_nodes import NewNodes
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.sources import SourceOptions
from nfdist.sparse.dgl_door import dgl
from nfdist.store.store import Store
from tests.needs import needs_dgl
from tests.partitioning import fuzzing as fuzz
from tests.partitioning import odd_sources as odd

OPTIONS = st.sampled_from([SourceOptions(), SourceOptions(id_column="key"), SourceOptions(normalize_features="row")])
TABLE_OPTIONS = st.sampled_from(
    [SourceOptions(), SourceOptions(feature_columns=("x",)), SourceOptions(feature_columns=("x", "name"), task="multi")]
)

KEYS = [
    *("source", "parts", "out", "method", "assignment", "directed", "split", "split_index", "seed", "knn", "task"),
    *("normalize_features", "scale", "id_column", "feature_columns", "label_column", "split_column", "options", "zzz"),
]
VALUES = st.sampled_from(
    [
        *('"no"', '"x"', "1", "1.5", "true", "[]", '["a"]', '["a", "a"]', "[1]", "{a=1}", "1979-05-27", "inf", "nan"),
        *(
            "-1",
            '""',
            '"a\\u0000b"',
            "1" + "0" * 20,
            "0x" + "f" * 5000,
            "[" * 50 + "]" * 50,
            "[" * 5000,
            '"' + "a" * 5000 + '"',
        ),
        *('"random:1/0/0"', '"official"', '"row"', '"metis"', '"file"', "1e20", "876.5"),
    ]
)


@st.composite
def odd_recipes(draw: st.DrawFn) -> str:
    lines = {
        "source": '"cora"',
        "parts": "2",
        **draw(st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=3)),
    }
    return "\n".join(f"{key} = {value}" for key, value in lines.items())


def npz_case(folder: Path) -> Callable[[Any], str]:
    whole = st.sampled_from([odd.npz_bytes(odd.whole_arrays()), odd.npz_bytes(odd.csr_arrays())])
    keys = st.sampled_from(sorted(odd.whole_arrays()))

    def case(data: Any) -> str:
        kind = data.draw(st.sampled_from(["bytes", "arrays", "header"]))
        if kind == "bytes":
            content = data.draw(fuzz.damaged(data.draw(whole)))
        elif kind == "arrays":
            content = odd.npz_bytes(data.draw(odd.odd_arrays()))
        else:
            content = odd.with_header(data.draw(keys), data.draw(odd.HEADERS))
        (folder / "toy.npz").write_bytes(content)
        options = data.draw(OPTIONS)
        return fuzz.outcome(lambda: fuzz.load_and_count(folder / "toy.npz", options))

    return case


def parquet_case(folder: Path) -> Callable[[Any], str]:
    odd.save_tables(folder, *odd.whole_tables())
    whole = {name: (folder / f"{name}.parquet").read_bytes() for name in ("nodes", "edges")}

    def case(data: Any) -> str:
        if data.draw(st.booleans()):
            name = data.draw(st.sampled_from(sorted(whole)))
            odd.save_tables(folder, *odd.whole_tables())
            (folder / f"{name}.parquet").write_bytes(data.draw(fuzz.damaged(whole[name])))
        else:
            odd.save_tables(folder, *data.draw(odd.odd_tables()))
        options = data.draw(TABLE_OPTIONS)
        return fuzz.outcome(lambda: fuzz.load_and_count(folder, options))

    return case


def csv_case(folder: Path) -> Callable[[Any], str]:
    nodes, edges = odd.csv_bytes()

    def case(data: Any) -> str:
        change = data.draw(st.sampled_from([fuzz.damaged, odd.odd_csv]))
        (folder / "nodes.csv").write_bytes(data.draw(change(nodes)))
        (folder / "edges.csv").write_bytes(data.draw(change(edges)) if data.draw(st.booleans()) else edges)
        options = data.draw(TABLE_OPTIONS)
        return fuzz.outcome(lambda: fuzz.load_and_count(folder, options))

    return case


def dgl_case(folder: Path) -> Callable[[Any], str]:
    graph = dgl().graph((torch.tensor([0, 1, 2, 5]), torch.tensor([1, 2, 0, 8])), num_nodes=odd.NODES)
    graph.ndata["feat"] = torch.ones(odd.NODES, 2)
    graph.ndata["label"] = torch.arange(odd.NODES) % 3
    graph.ndata["key"] = torch.arange(odd.NODES)
    contents = []
    for formats in ("coo", "csr", "csc"):
        dgl().save_graphs(str(folder / "toy.bin"), [graph], formats=formats)
        contents.append((folder / "toy.bin").read_bytes())

    def case(data: Any) -> str:
        whole = data.draw(st.sampled_from(contents))
        # Most of the first 4,096 bytes are nothing.
        changed = data.draw(fuzz.damaged(whole[4096:]))
        head = data.draw(fuzz.damaged(whole[:40])) + whole[40:4096] if data.draw(st.booleans()) else whole[:4096]
        (folder / "toy.bin").write_bytes(head + changed)
        options = data.draw(OPTIONS)
        return fuzz.outcome(lambda: fuzz.load_and_count(folder / "toy.bin", options))

    return case


def dgl_partition_case(folder: Path) -> Callable[[Any], str]:
    ring = torch.arange(odd.NODES)  # since DGL fails on a part without edges
    graph = dgl().graph((ring, ring.roll(1)), num_nodes=odd.NODES)
    graph.ndata["feat"] = torch.ones(odd.NODES, 2)
    dgl().seed(0)
    with contextlib.redirect_stdout(io.StringIO()):
        dgl().distributed.partition_graph(graph, "toy", 2, str(folder), part_method="random")
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".json", ".dgl"))
    whole = {path: path.read_bytes() for path in files}

    def case(data: Any) -> str:
        for path, content in whole.items():
            path.write_bytes(content)
        path = data.draw(st.sampled_from(files))
        content = whole[path]
        if path.suffix == ".json" and data.draw(st.booleans()):
            old = data.draw(st.sampled_from([b"2", b"9", b"4", b'"part0/graph.dgl"', b"{", b'"_N"', b"["]))
            new = data.draw(st.sampled_from([b"-1", b"1e99", b"null", b"[]", b"{}", b'"x"', b"[" * 9999, b"9" * 25]))
            path.write_bytes(content.replace(old, new, 1))
        else:
            path.write_bytes(data.draw(fuzz.damaged(content)))
        return fuzz.outcome(lambda: fuzz.load_and_count(folder / "toy.json", SourceOptions()))

    return case


def recipe_case(folder: Path) -> Callable[[Any], str]:
    def case(data: Any) -> str:
        text = data.draw(odd_recipes()).encode()
        (folder / "recipe.toml").write_bytes(data.draw(fuzz.damaged(text)) if data.draw(st.booleans()) else text)
        return fuzz.outcome(lambda: Recipe.build(str(folder / "recipe.toml"), {}))

    return case


def predict_case(folder: Path) -> Callable[[Any], str]:
    (folder / "source").mkdir()
    odd.save_tables(folder / "source", *odd.whole_tables())
    partition(Recipe.build(str(folder / "source"), {"parts": 1, "out": str(folder / "graph")}))
    store = Store.open(folder / "graph")
    new = pa.table({"id": [100, 101, 12], "features": [[1.0]] * 3, "neighbors": [[10, 11], [], [12]]})
    pq.write_table(new, folder / "new.parquet")
    whole = (folder / "new.parquet").read_bytes()

    def case(data: Any) -> str:
        if data.draw(st.booleans()):
            (folder / "new.parquet").write_bytes(data.draw(fuzz.damaged(whole)))
        else:
            pq.write_table(data.draw(odd.odd_columns_of(new)), folder / "new.parquet")
        return fuzz.outcome(lambda: NewNodes.read(folder / "new.parquet", store))

    return case


CASES = {
    "npz": npz_case,
    "parquet": parquet_case,
    "csv": csv_case,
    "dgl": dgl_case,
    "dgl-partition": dgl_partition_case,
    "recipe": recipe_case,
    "predict": predict_case,
}


NAMES = [pytest.param(name, marks=[needs_dgl] if name.startswith("dgl") else []) for name in CASES]


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # partition_graph leaves its own open
@pytest.mark.parametrize("name", NAMES)
def test_a_few_damaged_inputs_are_graphs_or_one_line(name: str, tmp_path: Path) -> None:
    fuzz.try_some(CASES[name](tmp_path))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("name", NAMES)
def test_many_damaged_inputs_are_graphs_or_one_line(name: str, tmp_path: Path) -> None:
    fuzz.try_many(name, CASES[name](tmp_path))
