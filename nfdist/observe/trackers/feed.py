"""The feed of a tracker: a thread of its own copies the lines of metrics.jsonl, and no step waits for it.

What was sent is remembered beside it, so that a run that goes on continues where its tracker is, and one that was cut
back to a checkpoint tells no step twice. A tracker that fails is tried again later from there: nothing is lost, since
the lines are in the file. Its failures end no training.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from nfdist import files, log
from nfdist.observe.trackers.tracker import DOORS, Line, Sent, TrackedRun, Tracker, flattened

Read = Callable[[int], tuple[list[dict[str, Any]], int]]  # some lines from a position on, and the position after them

SECONDS_BETWEEN = 2.0
SECONDS_BETWEEN_ATTEMPTS = 30.0
SECONDS_TO_END = 20.0  # after a training that is over; a command that was stopped should end soon
SECONDS_TO_STOP = 5.0
_REST = 9.0  # times as long as a round took: a thread of Python takes time from the training


class Feed:
    """The lines of one run for one tracker. `read` gives whole lines that stay."""

    def __init__(self, name: str, run: TrackedRun, read: Read) -> None:
        self._name, self._run, self._read = name, run, read
        self._state_file = run.path / name / "sent.json"
        self._tracker: Tracker | None = None
        self._position = 0
        self._sent: dict[int, dict[str, int]] = {}
        self._ended: set[int] = set()
        self._begun: set[int] = set()
        self._result: Mapping[str, Any] | None = None
        self._failure, self._warned, self._done = "", False, False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"nfdist {name}", daemon=True)
        self._thread.start()

    def close(self, result: Mapping[str, Any] | None = None) -> None:
        """Send the rest, with the result of a training that is over, and wait for it so long as is fit."""
        if self._closing.is_set():
            return
        self._result = result
        self._closing.set()
        self._thread.join(SECONDS_TO_STOP if result is None else SECONDS_TO_END)
        if not self._done:
            reason = self._failure or "it is slow"
            log.warn(
                f"{self._name} lacks the last of {self._run.path}, whose metrics.jsonl has all ({reason}); "
                "nfdist train --resume sends the rest"
            )

    def _work(self) -> None:
        pause = 0.0
        while True:
            closing = self._closing.wait(pause)  # looked at before a round, so that the last one sends all
            started = time.monotonic()
            try:
                self._round(everything=closing)
                self._failure = ""
                pause = max(SECONDS_BETWEEN, _REST * (time.monotonic() - started))
                self._done = closing
            except Exception as error:  # whatever it is, the training must not end for it, nor may it be kept quiet
                self._fail(error)
                pause = SECONDS_BETWEEN_ATTEMPTS
            if closing:
                return

    def _fail(self, error: Exception) -> None:
        self._failure = " ".join(str(error).split())[:200] or type(error).__name__
        if not self._warned:
            self._warned = True
            log.warn(f"{self._name} was not updated, the training goes on: {self._failure}")
        tracker, self._tracker = self._tracker, None
        try:
            if tracker is not None:
                tracker.close(finished=False)
        except Exception:  # the failure above is the one to tell of
            return

    def _round(self, *, everything: bool) -> None:
        if self._tracker is None:
            self._tracker = DOORS[self._name].open(self._run)
            self._take_up(self._tracker)
        while True:
            lines, position = self._read(self._position)
            self._send(self._tracker, [Line.of(line) for line in lines if Line.told_by(line)])
            ended, self._position = position == self._position, position
            if ended or not everything:
                break
        if everything:
            self._end(self._tracker)

    def _take_up(self, tracker: Tracker) -> None:
        """Find where to go on: after what was sent, and after what is still there for one that forgets the rest."""
        state = self._load_state()
        self._sent = {int(seed): dict(sent) for seed, sent in state["sent"].items()}
        self._ended, self._begun, self._position = set(state["ended"]), set(), 0
        if not (tracker.forgets and self._sent):
            return
        kept, position = dict[int, int](), -1
        while position != self._position:
            position = self._position
            lines, self._position = self._read(position)
            kept |= {int(line["seed"]): int(line["step"]) for line in lines if Line.told_by(line)}
        self._position = 0
        for seed, sent in self._sent.items():
            # The last step may have more lines than came, so it is told again.
            whole = max(0, min(kept.get(seed, 0), max(sent.values(), default=0)) - 1)
            self._sent[seed] = {"": whole}

    def _send(self, tracker: Tracker, lines: list[Line]) -> None:
        """Send what the tracker does not have, and remember it."""
        added = False
        for seed in dict.fromkeys(line.seed for line in lines):
            self._begin(tracker, seed)
            new = [line for line in lines if line.seed == seed and not self._has(line)]
            if not new:
                continue
            self._ended.discard(seed)
            tracker.add(seed, new)
            self._sent[seed] |= {line.kind: line.step for line in new}
            added = True
        if added:
            self._save_state()

    def _begin(self, tracker: Tracker, seed: int) -> None:
        if seed in self._begun:
            return
        sent = self._sent.setdefault(seed, {})
        known: Sent = tracker.begin(seed, sent.get("", 0))
        self._sent[seed] = {kind: max(sent.get(kind, 0), known.get(kind, 0)) for kind in {*sent, *known}}
        self._begun.add(seed)

    def _has(self, line: Line) -> bool:
        sent = self._sent[line.seed]
        return line.step <= sent.get(line.kind, sent.get("", 0))

    def _end(self, tracker: Tracker) -> None:
        seeds = self._result["per_seed"] if self._result else []
        for one in seeds:
            if one["seed"] not in self._ended:
                self._begin(tracker, one["seed"])
                tracker.end(one["seed"], flattened({name: value for name, value in one.items() if name != "seed"}))
                self._ended.add(one["seed"])
        tracker.close(finished=self._result is not None)
        self._tracker = None
        self._save_state()

    def _load_state(self) -> dict[str, Any]:
        """What was sent for this very run; a file that cannot be read is none."""
        try:
            state = json.loads(self._state_file.read_bytes())
            if state["run"] == self._run.id and isinstance(state["sent"], dict) and isinstance(state["ended"], list):
                return dict(state)
        except (OSError, ValueError, TypeError, LookupError):
            pass
        return {"sent": {}, "ended": []}

    def _save_state(self) -> None:
        self._state_file.parent.mkdir(exist_ok=True)
        state = {"run": self._run.id, "sent": self._sent, "ended": sorted(self._ended)}
        files.replace_file(self._state_file, json.dumps(state))


class Feeds:
    """The feeds of all trackers of a run."""

    def __init__(self, names: tuple[str, ...], run: TrackedRun, read: Read) -> None:
        self._feeds = [Feed(name, run, read) for name in names]

    def close(self, result: Mapping[str, Any] | None = None) -> None:
        for feed in self._feeds:
            feed.close(result)
