"""New nodes are found by name: in any order, file and company a row gets what evaluation gave it."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

import nfdist
from nfdist.cli.main import main
from nfdist.evaluation.new_nodes import NewNodes
from nfdist.store.store import Store
from tests import tables
from tests.cli.runs import mistake

SETTINGS: dict[str, Any] = {
    "model": {"layers": 2, "channels": 8, "random_features": 10, "graph_layers": 1},
    "relation": {"order": 2},
    "train": {"epochs": 3, "batch_nodes": 60, "learning_rate": 0.01},
    "observe": {"port": 0},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of machines that was evaluated; they have no lists, which no CSV could hold."""
    folder = tmp_path_factory.mktemp("machines")
    nodes = tables.machines().drop(columns="spectrum")
    tables.build(tables.save(folder / "tables", nodes), folder / "graph")
    nfdist.train(data={"partition": str(folder / "graph")}, run={"dir": str(folder / "run")}, **SETTINGS)
    nfdist.evaluate(folder / "run")
    return folder


def evaluated(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "run" / "predictions.parquet").set_index("machine").sort_index()


def predict(folder: Path, out: Path, *words: Any) -> pd.DataFrame:
    assert main(["predict", *map(str, (folder / "run", *words, "--out", out))]) == 0
    return pd.read_parquet(out).set_index("machine").sort_index()


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("order", ["as it was", "reversed", "shuffled"])
def test_rows_of_the_graph_get_what_evaluation_gave_them(folder: Path, tmp_path: Path, order: str, suffix: str) -> None:
    nodes = tables.machines().drop(columns=["spectrum", "condition"])
    columns = {"as it was": list(nodes), "reversed": list(nodes)[::-1], "shuffled": sorted(nodes, key=hash)}[order]
    new = tables.write(nodes[columns].sample(frac=1, random_state=0), tmp_path / f"new{suffix}")
    joined = tables.write(tables.edges(), tmp_path / f"edges{suffix}")
    answers, wanted = predict(folder, tmp_path / "out.parquet", new, "--edges", joined), evaluated(folder)
    assert answers["label"].tolist() == wanted["label"].tolist()
    assert np.allclose(answers["probability"], wanted["probability"], rtol=1e-4)
    assert set(answers["label"]) <= {"failing", "good", "worn"}


def test_answers_are_in_the_users_words(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = evaluated(folder)
    truth = tables.machines().set_index("machine")["condition"]
    assert wanted["true_label"].tolist() == truth.loc[wanted.index].tolist()
    assert {word for words in wanted["top_labels"] for word in words} == {"failing", "good", "worn"}
    assert pq.read_schema(folder / "run" / "embeddings.parquet").names == ["machine", "embedding"]
    assert main(["evaluate", str(folder / "run"), "--json", "--probabilities"]) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(facts["per_class"]["test"]) == ["failing", "good", "worn"]
    spread = evaluated(folder)
    each = spread[[f"probability_{name}" for name in ("failing", "good", "worn")]]
    assert np.allclose(each.sum(axis=1), 1, atol=1e-5)
    assert (each.max(axis=1) == spread["probability"]).all()
    new = tables.write(tables.machines().drop(columns="spectrum")[:5], tmp_path / "new.csv")
    words = ["predict", folder / "run", new, "--out", tmp_path / "out.parquet", "--json", "--probabilities"]
    assert main([str(word) for word in words]) == 0
    assert sum(json.loads(capsys.readouterr().out.splitlines()[-1])["labels"].values()) == 5
    assert "probability_worn" in pq.read_schema(tmp_path / "out.parquet").names


def test_an_unseen_category_and_a_gap_are_other_and_the_mean(folder: Path, tmp_path: Path) -> None:
    store = Store.open(folder / "graph")
    row = tables.machines().drop(columns="spectrum")[:1].assign(machine="new")
    found = []
    for site, hours in (("Nowhere", 2.0), (None, 2.0), ("Oslo", None)):
        file = tables.write(row.assign(site=site, hours=hours), tmp_path / "new.parquet")
        found.append(NewNodes.read(file, store).features.toarray()[0])
    starts = np.cumsum([0, *(column.width for column in store.manifest.schema.columns)])
    place = [column.name for column in store.manifest.schema.columns].index("site")
    sites = slice(starts[place], starts[place + 1])
    assert [features[sites].tolist() for features in found] == [[0, 0, 0], [0, 0, 0], [0, 1, 0]]
    assert found[0][:2].tolist() == [2, 0]
    assert np.isnan(found[2][0])
    assert found[2][1] == 1
    predictor = nfdist.Predictor(folder / "run")
    table = row.assign(site="Nowhere", hours=np.nan)
    means = predictor._predictor._model.feature_means
    assert means is not None
    filled = row.assign(site="Nowhere", hours=float(means[0]))
    answers = [predictor.predict(one, probabilities=True) for one in (table, filled)]
    assert answers[0]["machine"].tolist() == ["new"]
    assert not np.allclose(answers[0]["probability"], answers[1]["probability"], rtol=1e-9)  # it also knows of the gap


def test_numbers_and_booleans_of_a_csv_are_those_of_parquet(folder: Path, tmp_path: Path) -> None:
    store = Store.open(folder / "graph")
    nodes = tables.machines().drop(columns="spectrum")
    rows = [NewNodes.read(tables.write(nodes, tmp_path / name), store) for name in ("new.parquet", "new.csv")]
    assert rows[0].ids.to_pylist() == rows[1].ids.to_pylist()
    assert np.array_equal(rows[0].features.toarray(), rows[1].features.toarray(), equal_nan=True)
    stored = store.take(torch.from_numpy(rows[0].node_ids)).to_dense().numpy()
    assert np.array_equal(rows[0].features.toarray(), stored, equal_nan=True)


def test_wrong_tables_of_new_nodes_are_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = tables.machines().drop(columns=["spectrum", "condition", "installed"])[:3]
    new = nodes.assign(machine=["a", "b", "c"])
    ends = pd.DataFrame({"source": ["M-0001", "a"], "target": ["a", "M-0002"]})
    for table, joined, words, message in (
        (new.drop(columns="load"), None, [], "has no column 'load', which the nodes of"),
        (new.rename(columns={"machine": "id"}), None, [], "has no column 'machine'"),
        (new.assign(load=["x", "y", "z"]), None, [], "column 'load' must be numbers, got"),
        (new.assign(load=[1, 2, np.inf]), None, [], "row 3, column 'load' is inf"),
        (new.assign(leased=[0, 1, 3]), None, [], "row 3, column 'leased' is 3"),
        (new.assign(machine=["a", "a", "b"]), None, [], "1 node ids occur more than once, the first is a"),
        (new.assign(neighbors="M-0001"), None, [], "neighbors must be lists of ids, got"),
        (new.assign(neighbors=[["b"], [], []]), None, [], "no node is called 'b' in .*: give --together"),
        (new.assign(neighbors=[["M-9999"], [], []]), None, ["--together"], "no node is called 'M-9999'"),
        (nodes, None, ["--together"], "has 'M-0000', a node of the graph: --together is for other nodes"),
        (new, ends.assign(target="M-0003", source="M-0001"), [], "row 1 joins 'M-0001' and 'M-0003', of which none"),
        (new, ends.assign(source=["a", "b"]), [], "no node is called 'a' in .*: give --together"),
        (new, ends.rename(columns={"source": "src"}), [], "has no column 'source'"),
        (new, ends.assign(source=[1.5, 2.5]), [], "named by integers or text, as ids are, got double"),
    ):
        file = tables.write(table, tmp_path / "new.parquet")
        more: list[str | Path] = list(words)
        if joined is not None:
            more += ["--edges", tables.write(joined, tmp_path / "edges.parquet")]
        line = mistake(capsys, "predict", folder / "run", file, "--out", tmp_path / "out.parquet", *more)
        assert re.search(message, line), (message, line)
        assert not (tmp_path / "out.parquet").exists()


def test_wrong_cells_of_a_csv_of_new_nodes_are_named(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tables.machines().drop(columns=["spectrum", "condition", "installed"])[:3].assign(machine=["a", "b", "c"])
    ends = pd.DataFrame({"source": ["M-0001", "a"], "target": ["a", "M-0002"]})
    for table, joined, message in (
        (new.assign(hours=["1", "2", "x"]), ends, "new.csv: row 3, column 'hours' is 'x', no number"),
        (new.assign(leased=["true", "yes", "no"]), ends, "row 2, column 'leased' is 'yes', neither true nor false"),
        (new.assign(site=["Oslo", "Málaga", "Lima"]), ends, "new.csv: row 2, column 'site' is not UTF-8: save"),
        (new.assign(machine=["a", "b", "ñ"]), ends, "new.csv: row 3, column 'machine' is not UTF-8: save"),
        (new, ends.assign(source=["", "a"]), "edges.csv: row 1 has no 'source': give every edge both ends"),
        (new, ends.assign(source=["ñ", "a"]), "edges.csv: row 1, column 'source' is not UTF-8: save"),
        (new, ends.set_axis(["head", "tail"], axis=1), "edges.csv has no column 'source', .* it has 'head', 'tail'"),
    ):
        table.to_csv(tmp_path / "new.csv", index=False, encoding="latin-1")
        joined.to_csv(tmp_path / "edges.csv", index=False, encoding="latin-1")
        words = ("--edges", tmp_path / "edges.csv", "--out", tmp_path / "out.parquet")
        line = mistake(capsys, "predict", folder / "run", tmp_path / "new.csv", *words)
        assert re.search(message, line), (message, line)
        assert not (tmp_path / "out.parquet").exists()


def test_a_list_of_neighbors_and_a_file_of_edges_say_the_same(folder: Path, tmp_path: Path) -> None:
    new = tables.machines().drop(columns=["spectrum"])[:3].assign(machine=["a", "b", "c"])
    listed = new.assign(neighbors=[["M-0001", "b"], ["M-0002", "M-0003"], []])
    pairs = [("M-0001", "a"), ("a", "b"), ("b", "M-0002"), ("M-0003", "b"), ("c", "c")]
    joined = pd.DataFrame(pairs, columns=["source", "target"])
    predictor = nfdist.Predictor(folder / "run")
    found = [
        predictor.predict(listed, together=True),
        predictor.predict(new, edges=joined, together=True),
        predictor.predict(new.iloc[::-1], edges=joined.iloc[::-1], together=True).iloc[::-1],
    ]
    for other in found[1:]:
        assert np.allclose(found[0]["probability"], other["probability"], rtol=1e-5)
    alone = predictor.predict(new.assign(neighbors=[["M-0001"], ["M-0002", "M-0003"], []]))
    same = np.isclose(alone["probability"], found[0]["probability"], rtol=1e-5)
    assert same.tolist() == [False, False, True]
