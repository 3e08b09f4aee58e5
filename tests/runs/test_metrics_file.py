"""Metrics are lines of JSON that a crash, a lost disk block or NaN cannot spoil."""

import json
import os
from pathlib import Path

import pytest

from nfdist import files
from nfdist.errors import CheckpointError
from nfdist.runs.metrics_file import MetricsFile
from nfdist.runs.run import Run
from tests.runs.building import save


def test_truncation_undoes_what_was_appended_since(run: Run) -> None:
    metrics = run.metrics_file
    assert (run.metrics(), metrics.size_bytes) == ([], 0)
    metrics.truncate(0)
    run.append({"kind": "step", "loss": 0.1 + 0.2})
    size = metrics.size_bytes
    before = (run.path / "metrics.jsonl").read_bytes()
    assert size == len(before)
    run.append({"kind": "epoch", "name": "käse\n"})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "torn')
    assert run.metrics() == [{"kind": "step", "loss": 0.1 + 0.2}, {"kind": "epoch", "name": "käse\n"}]
    metrics.truncate(size)
    assert (run.path / "metrics.jsonl").read_bytes() == before
    metrics.truncate(size)
    run.append({"kind": "again"})
    assert run.metrics() == [{"kind": "step", "loss": 0.1 + 0.2}, {"kind": "again"}]
    metrics.truncate(0)
    assert run.metrics() == []


def test_metrics_are_json_even_where_numbers_are_not(run: Run) -> None:
    nan, infinity = float("nan"), float("inf")
    run.append({"loss": nan, "scores": [infinity, 1.5, (-infinity,)], "deep": {"valid": nan, "ok": 2}})
    expected = {"loss": None, "scores": [None, 1.5, [None]], "deep": {"valid": None, "ok": 2}}
    text = (run.path / "metrics.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == expected
    run.write_result({"best": {"test": nan}})
    assert run.result() == {"best": {"test": None}}


def test_lost_metrics_are_told_of_and_do_not_hold_up_a_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for step in range(4):
        run.append({"step": step, "filling": "x" * 50_000})
    size, path = run.metrics_file.size_bytes, run.path / "metrics.jsonl"
    os.truncate(path, size - 60_000)  # the last line, and some of the one before
    run.metrics_file.truncate(size)
    assert [line["step"] for line in run.metrics()] == [0, 1]
    run.append({"step": 2})
    assert [line["step"] for line in run.metrics()] == [0, 1, 2]
    path.unlink()
    run.metrics_file.truncate(size)
    assert run.metrics() == []
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 2
    assert f"metrics.jsonl has lost {size:,} of the {size:,} bytes it had at the checkpoint" in warnings[1]
    run.append({"step": 0})
    run.append({"step": 1})
    run.metrics_file.truncate(run.metrics_file.size_bytes - 1)  # a size that was none
    assert [line["step"] for line in run.metrics()] == [0]


def test_a_line_that_is_no_json_is_named(run: Run) -> None:
    (run.path / "metrics.jsonl").write_text('{"a": 1}\n{"a"\n{"a": 2}\n')
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl has no JSON in line 2"):
        run.metrics()


def test_a_checkpoint_never_knows_more_metrics_than_the_disk(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(files, "flush", lambda path: order.append(path.name))
    run.append({"step": 1})
    save(run, 0, 1)
    assert order[0] == "metrics.jsonl"


def test_lines_after_a_position_are_read_on_from_where_the_last_ended(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    assert file.lines_after(0) == ([], 0)
    file.append({"step": 1})
    lines, position = file.lines_after(0)
    assert (lines, position) == ([{"step": 1}], file.size_bytes)
    with file.path.open("a") as torn:
        torn.write('no JSON\n[1]\n{"step": 2}\n{"st')
    lines, after = file.lines_after(position)
    assert lines == [{"step": 2}]
    assert file.lines_after(after) == ([], after)  # until the last line is whole
    with file.path.open("a") as torn:
        torn.write('ep": 3}\n')
    assert file.lines_after(after) == ([{"step": 3}], file.size_bytes)


def test_a_long_file_is_read_in_pieces(tmp_path: Path) -> None:
    file, found = MetricsFile(tmp_path / "metrics.jsonl"), list[int]()
    for step in range(600):
        file.append({"step": step, "note": "x" * 1000})
    position, after, pieces = -1, 0, 0
    while position != after:
        position = after
        lines, after = file.lines_after(position)
        found += [line["step"] for line in lines]
        pieces += bool(lines)
    assert found == list(range(600))
    assert pieces > 2
