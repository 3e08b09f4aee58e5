"""nfdist plan tells a source, a partition, a configuration and a run apart, and says what each will take."""

import json
from pathlib import Path
from typing import Any

import pytest

from nfdist import settings
from nfdist.cli.main import main
from nfdist.runs.run import Run
from tests.training.building import build_partition, config_of


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graph") / "partition")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NFDIST_CACHE", str(tmp_path / "cache"))  # without rates


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["plan", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_a_source_is_planned_to_be_partitioned(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, "amazon2m-like", "--scale", "0.001", "--parts", "4")
    assert [stage["name"] for stage in found["stages"]] == ["read", "order edges", "divide", "write"]
    assert found["fits"]


def test_a_configuration_and_its_overrides(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.toml"
    path.write_text(settings.dump(config_of(graph, tmp_path / "run", "relation.order=1")))
    found = planned(capsys, str(path), "--ranks", "2", "train.epochs=9", "train.batch_nodes=50")
    train, evaluate, predict = found["stages"]
    assert [train["name"], evaluate["name"], predict["name"]] == ["train", "evaluate", "predict"]
    assert train["steps"] == 9 * 3
    assert train["sent_bytes"] > 0
    assert found["ranks"] == 2
    assert not found["rates_measured"]
    assert found["batch_nodes"]["memory"] is not None
    assert not (tmp_path / "run").exists()


def test_a_partition_as_text(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(graph), "relation.order=2", "--memory", "64GiB", "--gpu-memory", "40GiB"]
    assert main(["plan", *words]) == 0
    text = capsys.readouterr().out
    for said in (
        "nodeformer on 245 nodes",
        "hops ",
        "any batch fits 64.0 GiB of memory a rank",
        "of a GPU a rank",
        "doctor --bench",
    ):
        assert said in text
    assert main(["plan", str(graph), "--memory", "100MiB"]) == 0
    text = capsys.readouterr().out
    assert "no batch fits 100.0 MiB" in text
    assert "train does not fit: it takes" in text


def test_a_run_is_planned_to_be_evaluated(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run.create(tmp_path / "run", config_of(graph, tmp_path / "run", "relation.order=1"), "")
    found = planned(capsys, str(tmp_path / "run"))
    assert [stage["name"] for stage in found["stages"]] == ["evaluate", "predict"]
    assert found["batch_nodes"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["amazon2m-like", "--parts", "2", "train.epochs=2"], "train.epochs=2 is for a partition"),
        (["amazon2m-like", "--parts", "2", "--gpu-memory", "1GiB"], "--gpu-memory is for a partition"),
        (["GRAPH", "--ranks", "0"], "--ranks must be at least 1, got 0"),
        (["GRAPH", "--memory", "4GB"], "--memory must be a size such as 4GiB"),
        (["GRAPH", "train.epoch=2"], "did you mean train.epochs?"),
        (["no-such-source", "--parts", "2"], "no-such-source"),
        (["no-such-source"], "is neither a file nor a known name"),
        (["no-such-partition", "--ranks", "2"], "is neither a file nor a known name"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], said: str, graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *(str(graph) if word == "GRAPH" else word for word in words)]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("nfdist: ")
    assert said in told
