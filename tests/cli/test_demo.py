"""The demo partitions, trains and evaluates with two real workers, labels new nodes, and says what it did."""

import json
from pathlib import Path

import pytest

from nfdist.cli.main import main
from nfdist.runs.run import Run


@pytest.mark.timeout(200)
def test_the_demo_partitions_trains_evaluates_and_predicts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--dir", str(tmp_path / "demo"), "--scale", "0.001", "--epochs", "2", "--json"]
    assert main(["demo", *arguments]) == 0
    output = capfd.readouterr().out
    results = json.loads(output.splitlines()[-1])
    assert results["partition"]["parts"] == 4
    assert results["train"]["world_size"] == 2
    assert 0 < results["train"]["best"]["test"] <= 1
    assert "$ torchrun --standalone --nproc-per-node 2 -m nfdist train" in output
    assert Run.open(tmp_path / "demo" / "run").result() == results["train"]
    assert results["evaluate"]["world_size"] == 2
    assert results["evaluate"]["test"] == pytest.approx(results["train"]["best"]["test"])
    assert (results["predict"]["nodes"], results["predict"]["known_nodes"]) == (5, 0)
    assert "new-4: class" in output


@pytest.mark.parametrize("arguments", [["--epochs", "0"], ["--workers", "0"], ["--dir", "/proc/nothing"]])
def test_mistakes_are_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
