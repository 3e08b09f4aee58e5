"""Event files are read back by TensorBoard's own reader: each number once, however often a seed was taken up."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from nfdist.observe.trackers.tensorboard_events import TensorBoardEvents
from nfdist.observe.trackers.tracker import Line
from tests.observe.trackers.reading import event_scalars, scalars_of
from tests.observe.trackers.remembering import lines_of, tracked_run


def told(lines: list[dict[str, Any]]) -> list[Line]:
    return [Line.of(line) for line in lines]


def test_numbers_settings_and_the_result_are_read_back(tmp_path: Path) -> None:
    run = tracked_run(tmp_path / "run")
    tracker, lines = TensorBoardEvents(run), lines_of(0, range(1, 8))
    tracker.begin(0, 0)
    tracker.add(0, told(lines[:3]))
    assert event_scalars(run.path, 0) == scalars_of(lines[:3])  # a reader need not wait for the end
    tracker.add(0, told(lines[3:]))
    tracker.end(0, {"best/valid": 0.5})
    tracker.close(finished=True)
    assert event_scalars(run.path, 0) == {**scalars_of(lines), "result/best/valid": [(7, 0.5)]}
    (path,) = (run.path / "tensorboard" / "seed-0").iterdir()
    events = EventAccumulator(str(path)).Reload()
    (start,) = events.summary_metadata.values()
    settings = HParamsPluginData.FromString(start.plugin_data.content).session_start_info.hparams
    assert {name: value.string_value for name, value in settings.items()} == run.settings


def test_a_seed_that_is_taken_up_has_each_step_once(tmp_path: Path) -> None:
    run, lines = tracked_run(tmp_path / "run"), lines_of(0, range(1, 10))
    for after in (0, 4, 2):
        tracker = TensorBoardEvents(run)
        tracker.begin(0, after)
        tracker.add(0, told([line for line in lines if line["step"] > after]))
        tracker.close(finished=False)
    assert event_scalars(run.path, 0) == scalars_of(lines)
    assert len(list((run.path / "tensorboard" / "seed-0").iterdir())) == 3


def test_a_full_disk_is_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    run = tracked_run(tmp_path / "run")
    tracker = TensorBoardEvents(run)
    monkeypatch.setattr(Path, "open", lambda self, mode: open("/dev/full", "wb"))  # noqa: PTH123, SIM115
    with pytest.raises(OSError, match="No space left"):
        tracker.begin(0, 0)
    full: Any = tracker._files[0][0]
    full.raw.close()  # what is left in its buffer has nowhere to go


def test_tensorflow_is_not_imported_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text('raise SystemExit("TensorFlow was imported")\n')
    code = "from nfdist.observe.trackers.tracker import check_trackers; check_trackers(['tensorboard']); import sys; "
    code += "assert 'tensorboard' in sys.modules and 'torch' not in sys.modules and 'tensorflow' not in sys.modules"
    root = str(Path(__file__).parents[3])
    environment = {"PYTHONPATH": f"{tmp_path}:{root}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
