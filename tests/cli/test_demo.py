"""The demo partitions, trains and evaluates with two real workers, labels new nodes, and says what it did."""

import json
import subprocess
from pathlib import Path

import pytest

from nfdist.cli.main import main
from nfdist.runs.run import Run
from tests.wheel import build_wheel, install_wheel


@pytest.mark.timeout(260)
def test_the_demo_of_an_installed_wheel_partitions_trains_evaluates_and_predicts(tmp_path: Path) -> None:
    environment = install_wheel(build_wheel(tmp_path), tmp_path / "environment")
    empty = tmp_path / "empty"
    empty.mkdir()
    words = [
        str(environment / "bin" / "nfdist"),
        "demo",
        "--dir",
        "demo",
        "--scale",
        "0.001",
        "--epochs",
        "2",
        "--json",
    ]
    done = subprocess.run(words, cwd=empty, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    assert results["partition"]["parts"] == 4
    assert results["train"]["world_size"] == 2
    assert 0 < results["train"]["best"]["test"] <= 1
    assert "$ torchrun --standalone --nproc-per-node 2 -m nfdist train" in done.stdout
    assert Run.open(empty / "demo" / "run").result() == results["train"]
    assert results["evaluate"]["world_size"] == 2
    assert results["evaluate"]["test"] == pytest.approx(results["train"]["best"]["test"])
    assert (results["predict"]["nodes"], results["predict"]["known_nodes"]) == (5, 0)
    assert "new-4: class" in done.stdout
    report = empty.resolve() / "demo" / "run" / "report.html"
    assert done.stdout.splitlines()[-2] == str(report)
    assert results["report"]["out"] == str(report)
    assert results["report"]["runs"][0]["absent"] == {}
    assert report.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("arguments", [["--epochs", "0"], ["--workers", "0"], ["--dir", "/proc/nothing"]])
def test_mistakes_are_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
