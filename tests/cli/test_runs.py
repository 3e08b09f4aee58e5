"""nfdist runs prints a table for people and all facts for scripts, whatever is wrong with single runs."""

import json
import re
from pathlib import Path

import pytest

from nfdist.cli.main import main
from nfdist.cli.runs import age_text
from nfdist.runs.run import Run
from tests.runs.building import CONFIG, save

SCORES = {"epoch": 3, "train": 0.9, "valid": 0.75, "test": 0.5}


@pytest.fixture
def top(tmp_path: Path) -> Path:
    run = Run.create(tmp_path / "study" / "gcn", CONFIG, "")
    save(run, 2, 7)
    run.mark_best(2, 7, SCORES)
    Run.create(tmp_path / "other", CONFIG, "")
    (tmp_path / "other" / "config.toml").write_text("nothing")
    return tmp_path


def test_the_table_and_the_facts(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(top), "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    *lines, last = captured.out.splitlines()
    assert lines[0].split() == ["state", "model", "graph", "epoch", "valid", "test", "age", "size", "run"]
    table = "\n".join(lines)
    assert re.search(r"^stopped +nodeformer +- +0/7 seed 1/2 +0\.7500 +0\.5000 +\d+ s +\S+ +study/gcn$", table, re.M)
    assert re.search(r"^damaged .* other\n    .*config\.toml was altered", table, re.M)
    facts = json.loads(last)
    found = {Path(one["path"]).name: one for one in facts["runs"]}
    assert facts["directory"] == str(top)
    assert (found["gcn"]["state"], found["gcn"]["valid"], found["gcn"]["at_work"]) == ("stopped", 0.75, [])
    assert found["other"]["state"] == "damaged"
    assert 0 <= found["gcn"]["age_seconds"] < 3600


def test_the_folder_is_this_one_unless_named(
    top: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(top / "study")
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith(" gcn")
    (top / "empty").mkdir()
    assert main(["runs", str(top / "empty")]) == 0
    assert capsys.readouterr().out == f"{top}/empty: no runs\n"


@pytest.mark.parametrize("name", ["nosuch", "study/gcn/run.json", "\0"])
def test_a_folder_that_cannot_be_read(top: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", f"{top}/{name}"]) == 2
    captured = capsys.readouterr()
    assert (captured.out, len(captured.err.splitlines())) == ("", 1)
    assert "name a folder that holds runs" in captured.err


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0 s"), (59.9, "59 s"), (60, "1 min"), (7200, "2 h"), (86_400 * 3.5, "3 d")]
)
def test_ages(seconds: float, text: str) -> None:
    assert age_text(seconds) == text
