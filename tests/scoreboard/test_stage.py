"""A stage is a process with limits; whatever becomes of it is kept, and asked for again instead of running it again."""

from dataclasses import replace
from pathlib import Path

import pytest
from stage import ABSENT, DONE, FAILED, SKIPPED, TIMED_OUT, Facts, last_json, reason

from tests.scoreboard.building import MEMORY_BYTES, facts, python, workshop

HOLD = "import json, time; held = bytearray(100 << 20); time.sleep(0.3); print(json.dumps({'test': 0.5}))"


def test_facts_are_those_of_the_process_and_are_kept(tmp_path: Path) -> None:
    shop, out = workshop(tmp_path), tmp_path / "made"
    stage = python("hold", f"open({str(out)!r}, 'wb').write(bytes(1000)); {HOLD}", out=(out,))
    found = shop.make(stage, {})
    assert (found.state, found.why, found.outcome) == (DONE, "", {"test": 0.5})
    assert found.disk_bytes == 1000
    assert found.private_bytes > 100 << 20
    assert found.resident_bytes > found.private_bytes
    assert 0.3 < found.seconds < 20
    assert 0 < found.cpu_seconds < found.seconds + 1
    assert shop.known(stage) == found
    assert Facts.read(shop.path(stage)) == found
    assert shop.known(replace(stage, command=("-c", "pass"))) is None
    assert workshop(tmp_path, code="2").known(stage) is None


def test_a_failure_says_why_and_keeps_what_was_printed(tmp_path: Path) -> None:
    text = "import sys; print('{\"steps\": 3}'); sys.exit('out of memory in a step')"
    found = workshop(tmp_path).make(python("failing", text), {})
    assert (found.state, found.why, found.outcome) == (FAILED, "out of memory in a step", {"steps": 3})


def test_memory_beyond_the_limit_fails_in_the_process_that_asks_for_it(tmp_path: Path) -> None:
    found = workshop(tmp_path).make(python("greedy", f"bytearray({MEMORY_BYTES})"), {})
    assert (found.state, found.why) == (FAILED, "MemoryError")
    assert found.private_bytes < MEMORY_BYTES


def test_what_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    found = workshop(tmp_path).make(python("endless", child, limit_seconds=0.3), {})
    assert (found.state, found.why) == (TIMED_OUT, "after 0 s")
    assert found.seconds < 20


def test_a_stage_without_what_it_needs_is_not_run(tmp_path: Path) -> None:
    broken = facts("train", state=FAILED)
    found = workshop(tmp_path).make(python("evaluate", "raise SystemExit(1)", needs=("train",)), {"train": broken})
    assert (found.state, found.why, found.seconds) == (SKIPPED, "train failed", 0.0)
    found = workshop(tmp_path).make(python("train", "raise SystemExit(1)", absent="no such file"), {})
    assert (found.state, found.why) == (ABSENT, "no such file")


def test_what_a_stage_makes_is_made_anew_and_what_it_discards_is_gone(tmp_path: Path) -> None:
    made, discarded = tmp_path / "made", tmp_path / "states"
    made.mkdir()
    (made / "old").touch()
    discarded.mkdir()
    stage = python("fresh", f"import os; os.mkdir({str(made)!r})", out=(made,), discards=(discarded,))
    assert workshop(tmp_path).make(stage, {}).done
    assert list(made.iterdir()) == []
    assert not discarded.exists()


def test_commands_and_reasons_have_no_folders_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NFDIST_DATA", "/somewhere/data")
    shop = workshop(tmp_path)
    shown = shop.shown(["-m", "nfdist", "partition", "/somewhere/data/x.npz", "--out", f"{tmp_path}/a"])
    assert shown == "python -m nfdist partition $NFDIST_DATA/x.npz --out WORK/a"


def test_reasons_and_outcomes_are_the_last_that_was_said() -> None:
    assert reason(1, ["Traceback", "ValueError: x"]) == "ValueError: x"
    assert reason(-9, ["progress"]) == "ended by signal 9, as for want of memory"
    assert reason(-6, ["terminate", "  what():  std::bad_alloc"]) == "out of memory: std::bad_alloc, signal 6"
    assert reason(3, []) == "exit code 3, without a word"
    assert last_json(["{}", '{"a": 1}', "[1]", "words"]) == {"a": 1}
    assert last_json(["words"]) == {}
