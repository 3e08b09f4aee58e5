"""nfdist predict labels new nodes in the way evaluation labels old ones, and refuses what it cannot use in one line."""

import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from nfdist.cli.main import main
from nfdist.evaluation.new_nodes import NewNodes
from nfdist.runs.run import Run
from nfdist.store.store import Store
from tests.accelerator.device import accelerator
from tests.cli.runs import copied, mistake, outcome, train_run
from tests.runs.building import flip

FEATURES = 100


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = train_run(tmp_path_factory.mktemp("evaluated"))
    assert main(["evaluate", str(run)]) == 0
    return run


@pytest.fixture
def run(evaluated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    capsys.readouterr()
    return copied(evaluated, tmp_path)


def new_nodes(path: Path, **columns: Any) -> Path:
    """Three new nodes, with other columns if given; None leaves a column away."""
    usual = {"id": ["a", "b", "c"], "features": [[0.5] * FEATURES] * 3, "neighbors": [[3, 4], None, [4, 4, 200]]}
    table = {name: values for name, values in {**usual, **columns}.items() if values is not None}
    pq.write_table(pa.table(table), path)
    return path


def test_no_package_is_loaded_that_predictions_do_not_need(run: Path, tmp_path: Path) -> None:
    file, out = new_nodes(tmp_path / "new.parquet"), tmp_path / "out.parquet"
    words = [sys.executable, "-X", "importtime", "-m", "nfdist", "predict", str(run), str(file), "--out", str(out)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert out.exists(), done.stderr
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert {"torch", "pyarrow", "nfdist.evaluation.states"} <= loaded
    assert loaded & {"pandas.core", "sklearn", "dgl", "ogb", "prometheus_client", "rich"} == set()
    assert loaded & {"nfdist.training", "nfdist.partitioning"} == set()


def test_nodes_of_the_graph_get_the_labels_that_evaluation_gave_them(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store.open(Run.open(run).config.data.partition)
    everyone = torch.arange(store.num_nodes)
    graph = store.induced(everyone)
    ends = graph.indptr.tolist()
    rows = [graph.sources[start:stop].long() for start, stop in pairwise(ends)]
    file = new_nodes(
        tmp_path / "new.parquet",
        id=store.original_ids(everyone),
        features=store.take(everyone).tolist(),
        neighbors=[store.original_ids(row).tolist() for row in rows],
    )
    facts = outcome(capsys, "predict", run, file, "--out", tmp_path / "out.parquet")
    assert (facts["nodes"], facts["known_nodes"], facts["neighbors"]) == (245, 245, graph.num_edges)
    assert facts["load_seconds"] > 0
    assert facts["predict_seconds"] > 0
    mine, wanted = (pq.read_table(path).to_pydict() for path in (tmp_path / "out.parquet", run / "predictions.parquet"))
    assert mine["id"] == wanted["id"]
    assert mine["label"] == wanted["label"]
    assert torch.allclose(torch.tensor(mine["top_probabilities"]), torch.tensor(wanted["top_probabilities"]), rtol=1e-4)


@pytest.mark.accelerator
def test_an_accelerator_answers_as_the_cpu(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    device, file = accelerator(), new_nodes(tmp_path / "new.parquet")
    monkeypatch.setattr(
        "nfdist.api.choose_device", lambda wanted, *_: torch.device("cpu") if wanted == "cpu" else device
    )
    tables = []
    for words in ((), ("--device", "cuda")):
        out = tmp_path / f"out {len(words)}.parquet"
        outcome(capsys, "predict", run, file, "--out", out, *words)
        tables.append(pq.read_table(out).to_pydict())
    assert tables[0]["label"] == tables[1]["label"]
    assert tables[0]["probability"] == pytest.approx(tables[1]["probability"], abs=1e-5)


def test_nodes_of_the_graph_without_their_edges_are_told_of(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store.open(Run.open(run).config.data.partition)
    everyone = torch.arange(store.num_nodes)
    heard = store.induced(everyone).indptr.diff()
    chosen = [int(heard.argmax()), int((heard > 0).nonzero()[-1])]
    names = store.original_ids(torch.tensor(chosen)).tolist()
    told = "of the rows are nodes of the graph that have edges there and none here"
    for neighbors, count in ((None, 2), ([[names[1]], None, None], 1), ([names, names, [3]], 0)):
        file = new_nodes(tmp_path / "new.parquet", id=[*names, 10**9], neighbors=neighbors)
        assert main(["predict", *map(str, (run, file, "--out", tmp_path / "out.parquet"))]) == 0
        errors = capsys.readouterr().err
        assert (f"{count} {told}" in errors) if count else (told not in errors)


def test_what_the_graph_did_not_have_is_told_and_changes_nothing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = torch.randn(3, FEATURES, generator=torch.Generator().manual_seed(0)).tolist()
    words = ("--out", tmp_path / "out.parquet", "--top-k", 2)
    tables = []
    for extra in ({}, {"comment": ["p", "q", "r"], "x": [1, 2, 3]}):
        file = new_nodes(tmp_path / "new.parquet", features=values, **extra)
        assert main(["predict", *map(str, (run, file, *words))]) == 0
        told = "columns that are not used, since the graph had none of the name: comment, x"
        assert (told in capsys.readouterr().err) == bool(extra)
        tables.append(pq.read_table(tmp_path / "out.parquet"))
    assert tables[0] == tables[1]
    assert tables[0].column("id").to_pylist() == ["a", "b", "c"]
    assert tables[0].column_names == ["id", "label", "probability", "top_labels", "top_probabilities"]
    assert {len(row) for row in tables[0].column("top_labels").to_pylist()} == {2}


def test_bad_input_is_one_line_and_writes_nothing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    huge = [[0.5] * FEATURES, [0.5] * 2 + [1e300] + [0.5] * 97, [0.5] * FEATURES]
    short, broken = [[0.5] * FEATURES, [0.5] * 99, [0.5] * FEATURES], [[0.5] * 99 + [float("nan")]] * 3
    for columns, pattern in (
        ({"neighbors": [[3], [4, 9999], []]}, "no node is called 9999 in .*: name nodes of the graph only"),
        ({"neighbors": [["x"], [], []]}, "no node is called 'x' in .*: name nodes of the graph only"),
        ({"neighbors": [3, 4, 5]}, "neighbors must be lists of ids, got int64"),
        ({"neighbors": [[3, None], [], []]}, "no node is called None"),
        ({"features": short}, "1 lists are ragged, the first in row 2 with 99 values instead of 100"),
        ({"features": broken}, "row 1, column 'features', entry 100 is nan: features must be finite"),
        ({"features": huge}, "row 2, column 'features', entry 3 is 1e[+]300: features must be finite"),
        ({"features": [[{"a": 1}]] * 3}, "column 'features': lists must hold numbers, got struct"),
        ({"features": ["x", "y", "z"]}, "column 'features' must be lists of numbers, got string"),
        ({"features": None}, "has no column 'features', which the nodes of .* have: add it"),
        ({"id": None}, "has no column 'id', which the nodes of .* have"),
        ({"id": ["a", None, "c"]}, "1 nodes have no 'id'"),
        ({"id": ["a", "b", "b"]}, "1 node ids occur more than once, the first is b"),
        ({"id": [1, 2, 1]}, "1 node ids occur more than once, the first is 1"),
        (
            {"id": pa.array([1, 2, 3], pa.timestamp("s"))},
            r"ids of column 'id' must be integers or text, got timestamp",
        ),
        ({"id": [1.0, 2.0, 3.0]}, "must be integers or text, got double"),
        ({"id": [[1], [2], [3]]}, "must be integers or text, got list<"),
        ({"id": pa.array([1, 2, 2**63], pa.uint64())}, "id 9223372036854775808 of .* does not fit"),
        ({"neighbors": [[{"a": 3}], [], []]}, "neighbors are named by integers or text, as ids are, got struct"),
        (
            {"neighbors": pa.array([[3], [], []], pa.list_(pa.timestamp("s")))},
            "neighbors are named by integers or text, as ids are, got timestamp",
        ),
    ):
        file = new_nodes(tmp_path / "new.parquet", **columns)
        assert re.search(pattern, mistake(capsys, "predict", run, file, "--out", tmp_path / "out.parquet")), columns
    (tmp_path / "text.parquet").write_text("id\n1\n")
    for name, pattern in (("text.parquet", "cannot be read"), ("nowhere.parquet", "does not exist")):
        text = mistake(capsys, "predict", run, tmp_path / name, "--out", tmp_path / "out.parquet")
        assert re.search(pattern, text)
    file = new_nodes(tmp_path / "new.parquet")
    assert "--top-k" in mistake(capsys, "predict", run, file, "--out", tmp_path / "out.parquet", "--top-k", 0)
    (tmp_path / "empty.parquet").write_bytes(file.read_bytes())
    pq.write_table(pq.read_table(file).slice(0, 0), tmp_path / "empty.parquet")
    text = mistake(capsys, "predict", run, tmp_path / "empty.parquet", "--out", tmp_path / "out.parquet")
    assert "has no rows: there is nothing to predict" in text
    assert not list(tmp_path.glob("*out.parquet*"))


def test_an_output_that_cannot_be_or_is_an_input_is_refused_before_the_work(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: Any) -> None:
        raise AssertionError("the nodes are read before the output is checked")

    monkeypatch.setattr(NewNodes, "read", work)
    file = new_nodes(tmp_path / "new.parquet")
    before = file.read_bytes()
    (tmp_path / "link.parquet").symlink_to(file)
    (tmp_path / "twin.parquet").hardlink_to(file)
    (tmp_path / "folder").mkdir()
    graph = Path(Run.open(run).config.data.partition)
    for out, message in (
        (file, "is in the place of"),
        (run / "predictions.parquet", "is in the place of"),
        (run / "edges.parquet", "is in the place of"),
        (tmp_path / "out.csv", "name it out.parquet"),
        (tmp_path / "folder" / ".." / "new.parquet", "is in the place of"),
        (tmp_path / "link.parquet", "is in the place of"),
        (tmp_path / "twin.parquet", "is in the place of"),
        (graph / "part-00000" / "nodes.arrow", "is in the place of"),
        (run / "config.toml", "is in the place of"),
        (run / "states" / "new.parquet", "is in the place of"),
        (tmp_path / "folder", "it is a directory"),
        (tmp_path / "none" / "out.parquet", "No such file or directory"),
        (Path(__file__) / "out.parquet", "Not a directory"),
        (tmp_path / ("x" * 250), "File name too long"),
    ):
        assert message in mistake(capsys, "predict", run, file, "--out", out)
    assert file.read_bytes() == before


def test_duplicate_columns_and_damaged_files_are_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("predict", run, tmp_path / "new.parquet", "--out", tmp_path / "out.parquet")
    table = pq.read_table(new_nodes(tmp_path / "new.parquet"))
    pq.write_table(table.append_column("id", table["id"]), tmp_path / "new.parquet")
    assert "has two columns called 'id': rename one of them" in mistake(capsys, *words)
    whole = new_nodes(tmp_path / "new.parquet").read_bytes()
    for length in (0, 3, len(whole) // 2, len(whole) - 1):
        (tmp_path / "new.parquet").write_bytes(whole[:length])
        assert "new.parquet cannot be read" in mistake(capsys, *words)
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), ["x" * 2**20])
    for store_schema in (True, False):  # then it is read as a dictionary, or as text
        wide = pa.table({"id": repeated, "features": [[0.5] * FEATURES] * 2000})
        pq.write_table(wide, tmp_path / "new.parquet", store_schema=store_schema)
        assert (tmp_path / "new.parquet").stat().st_size < 2**21
        assert "would take 2.0 GiB of memory" in mistake(capsys, *words)


def test_stale_or_altered_states_are_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("predict", run, new_nodes(tmp_path / "new.parquet"), "--out", tmp_path / "out.parquet")
    first = next(iter(Run.open(run).checkpoint_paths(0).values()))
    assert "was made from seed 0, step 10, the model is that of seed 0, step 8" in mistake(
        capsys, *words, "--checkpoint", first
    )
    with (run / "states" / "hidden-1.npy").open("ab") as file:
        file.write(b"more")
    assert re.search(r"hidden-1\.npy has .* instead of .*: nfdist evaluate .* makes them anew", mistake(capsys, *words))
    outcome(capsys, "evaluate", run, "--no-outputs")
    flip(run / "states" / "summary" / "summaries.safetensors", -1)
    assert "states was altered" in mistake(capsys, *words)
    outcome(capsys, "evaluate", run, "--no-outputs")
    for name in ("hidden-0.npy", "hidden-1.npy", "roots.npy"):
        for place in (3, 700, -1):
            flip(run / "states" / name, place)
            assert re.search(
                rf"states/{name} was altered .*nfdist evaluate .* makes them anew", mistake(capsys, *words)
            )
            flip(run / "states" / name, place)
    assert outcome(capsys, *words)["nodes"] == 3
    shutil.rmtree(run / "states")
    assert "holds no states, which predictions need: nfdist evaluate" in mistake(capsys, *words)
    outcome(capsys, "evaluate", run, "--no-outputs", "--no-states")
    assert "holds no states" in mistake(capsys, *words)
    outcome(capsys, "evaluate", run, "--no-outputs", "--checkpoint", first)
    assert outcome(capsys, *words, "--checkpoint", first)["nodes"] == 3
