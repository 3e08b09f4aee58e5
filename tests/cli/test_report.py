"""nfdist report says where the page is; a damaged run is one line and exit code 2, and leaves the old page alone."""

import json
import shutil
from pathlib import Path

import pytest

from nfdist.cli.main import main
from tests.cli.runs import mistake, outcome, train_run


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = train_run(tmp_path_factory.mktemp("report"), "train.evaluate_every=1")
    assert main(["evaluate", str(path)]) == 0
    return path


def test_it_writes_a_page_and_says_where(evaluated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(shutil.copytree(evaluated, tmp_path / "run"))
    capsys.readouterr()
    found = outcome(capsys, "report", run)
    assert found["out"] == str(run / "report.html")
    assert found["bytes"] == (run / "report.html").stat().st_size
    scores = json.loads((run / "evaluation.json").read_text())["outcome"]["smoothed"]
    assert found["runs"][0]["accuracy"] == pytest.approx(scores["accuracy"]["test"])
    assert found["runs"][0]["absent"] == {}
    two = outcome(capsys, "report", run, evaluated, "--out", tmp_path / "two.html")
    assert [one["run"] for one in two["runs"]] == [str(run), str(evaluated)]
    before = (run / "report.html").read_bytes()
    content = bytearray((run / "predictions.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (run / "predictions.parquet").write_bytes(content)
    told = mistake(capsys, "report", run)
    assert "predictions.parquet was altered since it was written" in told
    assert f"nfdist evaluate {run} makes it anew" in told
    assert (run / "report.html").read_bytes() == before


@pytest.mark.parametrize("words", [["nowhere"], ["nowhere", "--partition", "x"], []])
def test_mistakes_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    mistake(capsys, "report", *words)
