"""A partition and runs that an earlier version stored are read, evaluated and continued as if it had gone on itself."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.golden.cases import Case
from tests.golden.commands import run_command
from tests.golden.facts import differences, training_facts
from tests.golden.running import one_thread
from tests.golden.stored_runs import EXPECTED, GRAPH, RUNS, STOPPED_AFTER, STORED, evaluated

Expected = dict[str, Any]


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Expected:
    """What stored runs come to, beside a copy of them in the present folder."""
    shutil.copytree(STORED, tmp_path / "stored")
    monkeypatch.chdir(tmp_path / "stored")
    return json.loads(Path(EXPECTED).read_text())  # type: ignore[no-any-return]


def assert_same(mine: Expected, stored: Expected) -> None:
    assert {fact: apart for fact, apart in differences(mine, stored).items() if apart > Case.tolerance} == {}


@pytest.mark.parametrize("name", RUNS)
def test_stored_run_continues_to_the_numbers_of_one_that_never_stopped(name: str, expected: Expected) -> None:
    assert len(training_facts(Path(name))["step loss"]) == STOPPED_AFTER
    with one_thread():
        run_command("train", f"{name}/config.toml", "--resume")
    assert_same(training_facts(Path(name)), expected[name]["training"])


@pytest.mark.parametrize("name", RUNS)
def test_stored_run_is_evaluated_to_the_stored_scores(name: str, expected: Expected) -> None:
    with one_thread():
        assert_same(evaluated(name), expected[name]["evaluation"])


@pytest.mark.parametrize("name", RUNS)
def test_stored_run_is_whole(name: str, expected: Expected) -> None:
    assert run_command("inspect", name)["problems"] == []


def test_stored_partition_is_whole(expected: Expected) -> None:
    facts = run_command("inspect", GRAPH, "--verify")
    assert facts["verified"]
    assert facts["nodes"] == 120


def test_stored_files_name_no_place_on_a_machine() -> None:
    for path in (path for path in STORED.rglob("*") if path.is_file()):
        assert path.suffix != ".lock"
        assert not [word for word in (b"/tmp", b"/home", b"/root") if word in path.read_bytes()], path
