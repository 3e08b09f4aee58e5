"""The whole way over a real S3 server on loopback: tables, partition, training, mirror, a new host, answers.

`make test-remote` installs the server (moto's) first; without it these are skipped.
"""

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from nfdist.cli.main import main
from nfdist.errors import PartitionError
from nfdist.remote import Remote
from nfdist.store.store import Store
from tests.cli.runs import mistake, outcome
from tests.object_store import ENVIRONMENT, end_use, s3_server, uri
from tests.tables import machines, save
from tests.training.building import flat_weights

if not os.environ.get("NFDIST_REQUIRE_S3") and find_spec("moto") is None:
    pytest.skip("moto is not installed: make test-remote", allow_module_level=True)

NAMES = ("--id-column", "machine", "--label-column", "condition", "--split", "random:0.5/0.25/0.25")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with s3_server(tmp_path_factory.mktemp("s3")) as port:
        yield port


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NFDIST_CACHE", str(tmp_path / "cache"))
    yield
    end_use()


def upload(folder: Path, port: int, name: str) -> str:
    names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    Remote.open(uri(port, name), PartitionError).send_all(folder, names)
    return uri(port, name)


def test_tables_to_answers(tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]) -> None:
    tables = save(tmp_path / "tables", machines())
    source, there = upload(tables, port, "tables"), uri(port, "graphs/machines")
    divided = ("--parts", 3, "--method", "random", *NAMES)
    here: Any = outcome(capsys, "partition", tables, *divided, "--out", tmp_path / "graph")
    sent: Any = outcome(capsys, "partition", source, *divided, "--out", there)
    facts = ("parts", "nodes", "edges", "edge_cut")
    assert [here[name] for name in facts] == [sent[name] for name in facts]
    assert Store.open(there).manifest.files == Store.open(tmp_path / "graph").manifest.files
    assert outcome(capsys, "inspect", there, "--verify")["verified"]
    assert "exists: choose another --out" in mistake(capsys, "partition", source, *divided, "--out", there)

    settings = (
        "train.epochs=3",
        "train.schedule=constant",
        "train.batch_nodes=40",
        "train.checkpoint_every=2",
        "observe.port=0",
    )
    mirror = f"run.mirror={uri(port, 'runs/one')}"
    assert main(["train", str(tmp_path / "graph"), f"run.dir={tmp_path / 'whole'}", *settings, "train.epochs=6"]) == 0
    assert main(["train", there, f"run.dir={tmp_path / 'first'}", mirror, *settings]) == 0
    shutil.rmtree(tmp_path / "first")  # the host is lost
    resumed = [f"run.dir={tmp_path / 'second'}", mirror, *settings, "train.epochs=6", "--resume"]
    assert main(["train", there, *resumed]) == 0
    assert torch.equal(flat_weights(tmp_path / "second"), flat_weights(tmp_path / "whole"))

    whole, second = (outcome(capsys, "evaluate", tmp_path / name) for name in ("whole", "second"))
    assert whole["loss"] == second["loss"]
    new = uri(port, "tables/nodes.parquet")
    answers: Any = outcome(capsys, "predict", tmp_path / "second", new, "--out", tmp_path / "answers.parquet")
    assert answers["nodes"] == len(machines())


def test_a_host_fetches_its_parts_alone(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    there = uri(port, "graphs/parts")
    made = ["partition", "amazon2m-like", "--scale", "0.0001", "--parts", "3", "--method", "random", "--out", there]
    assert main(made) == 0
    monkeypatch.setenv("NFDIST_PARTS", "0,2")
    store = Store.open(there, Store.available_parts(there))
    assert list(store.held_parts) == [0, 2]
    assert sorted(path.name for path in store.directory.glob("part-*")) == ["part-00000", "part-00002"]


def test_mistakes_are_one_line(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert "holds no manifest.json" in mistake(capsys, "inspect", uri(port, "graphs/none"))
    gone = uri(port, "x").replace("s3://bucket", "s3://nobucket")
    assert "cannot be written" in mistake(capsys, "partition", "digits", "--knn", 3, "--parts", 1, "--out", gone)
