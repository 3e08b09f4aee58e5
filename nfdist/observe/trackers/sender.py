"""What of a run a tracker has, and how it gets the rest: each line of metrics.jsonl once, even if a run is cut back."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from nfdist import files
from nfdist.observe.trackers.tracker import DOORS, Line, Sent, TrackedRun, flattened

Read = Callable[[int], tuple[list[dict[str, Any]], int]]  # some lines from a position on, and the position after them


class Sender:
    """One take-up of a run by a tracker. What was sent is remembered beside it, after every round.

    Whatever fails leaves what is remembered as it was: the next sender goes on from there. `ended` seeds have their
    result in the tracker.
    """

    def __init__(self, name: str, run: TrackedRun, read: Read) -> None:
        self._run, self._read = run, read
        self._state_file = run.path / name / "sent.json"
        self._tracker = DOORS[name].open(run)
        self._begun: set[int] = set()
        self._position = 0
        state = self._load_state()
        self._sent: dict[int, dict[str, int]] = {int(seed): dict(sent) for seed, sent in state["sent"].items()}
        self._ended: set[int] = set(state["ended"])
        if self._tracker.forgets:
            self._cut_back()

    def send(self, *, everything: bool) -> None:
        """Send what can be read at once, or all there is."""
        while True:
            lines, position = self._read(self._position)
            self._send([Line.of(line) for line in lines if Line.told_by(line)])
            ended, self._position = position == self._position, position
            if ended or not everything:
                return

    def end(self, result: Mapping[str, Any]) -> None:
        """Send what every seed of a training came to."""
        for one in result["per_seed"]:
            if one["seed"] not in self._ended:
                self._begin(one["seed"])
                self._tracker.end(one["seed"], flattened({name: one[name] for name in one if name != "seed"}))
                self._ended.add(one["seed"])

    def close(self, *, finished: bool) -> None:
        """End what was begun in the tracker."""
        self._tracker.close(finished)
        if finished:
            self._save_state()

    def _cut_back(self) -> None:
        """Count what is no longer among the lines as not sent, and the last step, too: it may have more lines."""
        if not self._sent:
            return
        kept, position = dict[int, int](), -1
        while position != self._position:
            position = self._position
            lines, self._position = self._read(position)
            kept |= {line["seed"]: line["step"] for line in lines if Line.told_by(line)}
        self._position = 0
        for seed, sent in self._sent.items():
            whole = min(kept.get(seed, 0), max(sent.values(), default=0)) - 1
            self._sent[seed] = {"": max(0, whole)}
        self._save_state()  # before the tracker forgets the rest

    def _send(self, lines: list[Line]) -> None:
        added = False
        for seed in dict.fromkeys(line.seed for line in lines):
            self._begin(seed)
            new = [line for line in lines if line.seed == seed and not self._has(line)]
            if not new:
                continue
            self._ended.discard(seed)
            self._tracker.add(seed, new)
            self._sent[seed] |= {line.kind: line.step for line in new}
            added = True
        if added:
            self._save_state()

    def _begin(self, seed: int) -> None:
        if seed in self._begun:
            return
        sent = self._sent.setdefault(seed, {})
        known: Sent = self._tracker.begin(seed, sent.get("", 0))
        self._sent[seed] = {kind: max(sent.get(kind, 0), known.get(kind, 0)) for kind in {*sent, *known}}
        self._begun.add(seed)

    def _has(self, line: Line) -> bool:
        sent = self._sent[line.seed]
        return line.step <= sent.get(line.kind, sent.get("", 0))

    def _load_state(self) -> dict[str, Any]:
        """What was sent of this very run; a file that cannot be read says nothing."""
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
