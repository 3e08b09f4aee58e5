"""W&B without a network: its offline files have each number of a run once, and nobody who is not logged in is asked."""

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nfdist.errors import ConfigError
from nfdist.observe.trackers.feed import Feed
from nfdist.observe.trackers.sender import Sender
from nfdist.observe.trackers.tracker import check_trackers
from nfdist.runs.metrics_file import MetricsFile
from tests.observe.trackers.needing import need
from tests.observe.trackers.reading import scalars_of
from tests.observe.trackers.remembering import lines_of, tracked_run, write_lines

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

HEADER_BYTES, BLOCK_BYTES = 7, 1 << 15
FRAGMENT = struct.Struct("<IHB")
FULL, LAST = 1, 4
RESULT = {"per_seed": [{"seed": 0, "best": {"valid": 0.5}}]}


@pytest.fixture(autouse=True)
def wandb(monkeypatch: pytest.MonkeyPatch) -> None:
    need("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("WANDB_PROJECT", "WANDB_API_KEY", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)


def records(run: Path, times: int = 1) -> list[Any]:
    """All that would be sent to W&B, of every time that a run was taken up, oldest first.

    W&B writes in a process of its own, and that a run has ended is what it writes last.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    ends = time.monotonic() + 60
    while True:
        files = sorted(run.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns)
        found = [Record.FromString(data) for path in files for data in logged(path.read_bytes())]
        if sum(record.WhichOneof("record_type") == "exit" for record in found) == times:
            return found
        assert time.monotonic() < ends
        time.sleep(0.1)


def logged(content: bytes) -> Iterator[bytes]:
    """The records of a log in LevelDB's format: blocks of fragments, each under its checksum, length and type."""
    position, whole = HEADER_BYTES, b""
    while position + FRAGMENT.size <= len(content):
        _, size, kind = FRAGMENT.unpack_from(content, position)
        if BLOCK_BYTES - position % BLOCK_BYTES < FRAGMENT.size:
            position += BLOCK_BYTES - position % BLOCK_BYTES
            continue
        position += FRAGMENT.size + size
        whole += content[position - size : position]
        if kind in (FULL, LAST):
            yield whole
            whole = b""


def named(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def history(found: list[Any]) -> dict[str, list[tuple[int, float]]]:
    told: dict[str, list[tuple[int, float]]] = {}
    for record in found:
        values = named(record.history.item)
        for name, value in values.items():
            if not name.startswith("_"):
                told.setdefault(name, []).append((values["_step"], value))
    return told


def test_a_run_has_its_numbers_settings_and_result(tmp_path: Path) -> None:
    run, file = tracked_run(tmp_path / "run"), MetricsFile(tmp_path / "metrics.jsonl")
    lines = lines_of(0, range(1, 31))
    write_lines(file.path, lines)
    Feed("wandb", run, file.lines_after).close(RESULT, seconds=60)
    found = records(run.path)
    assert history(found) == scalars_of(lines)
    (made,) = [record.run for record in found if record.WhichOneof("record_type") == "run"][:1]
    assert (made.run_id, made.project, made.run_group) == (f"{run.id}-0", "nfdist", "run")
    assert made.display_name == "run seed 0"
    assert named(made.config.update).items() >= run.settings.items()
    summary = [item for record in found for item in record.summary.update]
    assert named(summary)["result/best/valid"] == 0.5


def test_a_run_that_is_cut_back_tells_each_step_once(tmp_path: Path) -> None:
    run, file = tracked_run(tmp_path / "run"), MetricsFile(tmp_path / "metrics.jsonl")
    lines = lines_of(0, range(1, 21))
    for kept, reached in [(0, 12), (8, 9), (5, 20)]:
        write_lines(file.path, [line for line in lines if line["step"] <= kept])
        sender = Sender("wandb", run, file.lines_after)
        write_lines(file.path, [line for line in lines if line["step"] <= reached])
        sender.send(everything=True)
        sender.close(finished=False)
    assert history(records(run.path, times=3)) == scalars_of(lines)


def test_who_is_not_logged_in_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"nobody is logged in: run wandb login.*WANDB_MODE=offline"):
        check_trackers(["wandb"])
    monkeypatch.setenv("WANDB_MODE", "offline")
    check_trackers(["wandb"])
