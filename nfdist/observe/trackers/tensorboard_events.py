"""TensorBoard: event files in RUN_DIR/tensorboard, a folder a seed, by its package alone, without TensorFlow."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any, BinaryIO

from nfdist.observe.trackers.tracker import Line, Sent, TrackedRun

FILE_VERSION = "brain.Event:2"


@cache
def tensorboard() -> SimpleNamespace:
    """What is used of TensorBoard, imported on first use."""
    # It would import TensorFlow where there is one; by this name it knows that none is wanted.
    sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

    return SimpleNamespace(
        Event=Event, SessionLog=SessionLog, Summary=Summary, hparams_pb=hparams_pb, RecordWriter=RecordWriter
    )


def check() -> None:
    """Only the package can be missing."""
    tensorboard()


class TensorBoardEvents:
    """Each seed has a file of events, written when it is added to; what a reader should forget is said in the next."""

    forgets = True

    def __init__(self, run: TrackedRun) -> None:
        self._run, self._package = run, tensorboard()
        self._files = dict[int, tuple[BinaryIO, Any]]()
        self._last_step = dict[int, int]()

    def begin(self, seed: int, after: int) -> Sent:
        folder = self._run.path / "tensorboard" / f"seed-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        began_before = any(folder.iterdir())
        # Readers take the files of a folder by their names.
        name = f"events.out.tfevents.{time.time_ns() // 1000:020d}.{os.uname().nodename}.{os.getpid()}.nfdist"
        file = (folder / name).open("xb")
        self._files[seed] = file, self._package.RecordWriter(file)
        self._last_step[seed] = after
        self._write(seed, file_version=FILE_VERSION)
        if began_before:  # readers drop the events of this step and later ones
            start = self._package.SessionLog.START
            self._write(seed, step=after + 1, session_log=self._package.SessionLog(status=start))
        else:
            trial = f"{self._run.id}-{seed}"
            self._write(seed, summary=self._package.hparams_pb(dict(self._run.settings), trial_id=trial))
        self._flush(seed)
        return {}

    def add(self, seed: int, lines: Sequence[Line]) -> None:
        for line in lines:
            self._write_scalars(seed, line.step, line.values)
        self._last_step[seed] = lines[-1].step
        self._flush(seed)

    def end(self, seed: int, result: Mapping[str, float]) -> None:
        self._write_scalars(seed, self._last_step[seed], {f"result/{name}": value for name, value in result.items()})
        self._flush(seed)

    def close(self, finished: bool) -> None:
        for file, _ in self._files.values():
            file.close()
        self._files.clear()

    def _write_scalars(self, seed: int, step: int, values: Mapping[str, float]) -> None:
        summary = self._package.Summary
        tagged = [summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(seed, step=step, summary=summary(value=tagged))

    def _write(self, seed: int, **facts: Any) -> None:
        event = self._package.Event(wall_time=time.time(), **facts)
        self._files[seed][1].write(event.SerializeToString())

    def _flush(self, seed: int) -> None:
        self._files[seed][1].flush()
