"""W&B without a network: its offline files have each number of a run once, and nobody who is not logged in is asked."""

import json
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

RESULT = {"per_seed": [{"seed": 0, "best": {"valid": 0.5}}]}


@pytest.fixture(autouse=True)
def wandb(monkeypatch: pytest.MonkeyPatch) -> None:
    need("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("WANDB_PROJECT", "WANDB_API_KEY", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)


def records(run: Path) -> list[Any]:
    """All that would be sent to W&B, of every time that a run was taken up, oldest first."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    found = []
    for path in sorted(run.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns):
        store = DataStore()
        store.open_for_scan(str(path))
        while (data := store.scan_data()) is not None:
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            found.append(record)
    return found


def history(found: list[Any]) -> dict[str, list[tuple[int, float]]]:
    told: dict[str, list[tuple[int, float]]] = {}
    for record in found:
        if record.WhichOneof("record_type") == "history":
            values = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item
            }
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
    assert (made.run_id, made.project, made.run_group, made.display_name) == (
        f"{run.id}-0",
        "nfdist",
        "run",
        "run seed 0",
    )
    settings = {item.key: json.loads(item.value_json) for item in made.config.update}
    assert settings.items() >= run.settings.items()
    summary = [item for record in found for item in record.summary.update]
    assert {(item.key or "/".join(item.nested_key)): item.value_json for item in summary}["result/best/valid"] == "0.5"


def test_a_run_that_is_cut_back_tells_each_step_once(tmp_path: Path) -> None:
    run, file = tracked_run(tmp_path / "run"), MetricsFile(tmp_path / "metrics.jsonl")
    lines = lines_of(0, range(1, 21))
    for kept, reached in [(0, 12), (8, 9), (5, 20)]:
        write_lines(file.path, [line for line in lines if line["step"] <= kept])
        sender = Sender("wandb", run, file.lines_after)
        write_lines(file.path, [line for line in lines if line["step"] <= reached])
        sender.send(everything=True)
        sender.close(finished=False)
    assert history(records(run.path)) == scalars_of(lines)


def test_who_is_not_logged_in_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"nobody is logged in: run wandb login.*WANDB_MODE=offline"):
        check_trackers(["wandb"])
    monkeypatch.setenv("WANDB_MODE", "offline")
    check_trackers(["wandb"])
