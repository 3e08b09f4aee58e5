"""The feed of a tracker: a thread of its own copies the lines of metrics.jsonl, and no step waits for it.

A tracker that fails is tried again later, and its failures end no training. Nothing is lost by that, since the lines
are in the file.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any

from nfdist import log
from nfdist.observe.trackers.sender import Read, Sender
from nfdist.observe.trackers.tracker import TrackedRun

SECONDS_BETWEEN = 2.0
SECONDS_BETWEEN_ATTEMPTS = 30.0
SECONDS_TO_END = 20.0  # after a training that is over; a command that was stopped should end soon
SECONDS_TO_STOP = 5.0
_REST = 9.0  # times as long as a round took, since a thread of Python takes time from the training
_REASON_CHARACTERS = 200


class Feed:
    """The lines of one run for one tracker. `read` gives whole lines that stay."""

    def __init__(self, name: str, run: TrackedRun, read: Read) -> None:
        self._name, self._run, self._read = name, run, read
        self._sender: Sender | None = None
        self._result: Mapping[str, Any] | None = None
        self._failure, self._warned, self._done = "", False, False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"nfdist {name}", daemon=True)
        self._thread.start()

    def close(self, result: Mapping[str, Any] | None = None, seconds: float | None = None) -> None:
        """Send the rest, with the result of a training that is over, and wait for it so long as is fit."""
        if self._closing.is_set():
            return
        self._result = result
        self._closing.set()
        usual = SECONDS_TO_STOP if result is None else SECONDS_TO_END
        self._thread.join(usual if seconds is None else seconds)
        if not self._done:
            log.warn(
                f"{self._name} lacks the last of {self._run.path}, whose metrics.jsonl has all "
                f"({self._failure or 'it is slow'}); nfdist train --resume sends the rest"
            )

    def _work(self) -> None:
        pause, closing = 0.0, False
        while not closing:
            closing = self._closing.wait(pause)  # looked at before a round, so that the last one sends all
            started = time.monotonic()
            try:
                self._round(last=closing)
                self._failure, self._done = "", closing
                pause = max(SECONDS_BETWEEN, _REST * (time.monotonic() - started))
            except Exception as error:  # whatever it is, the training must not end for it, nor may it be kept quiet
                self._fail(error)
                pause = SECONDS_BETWEEN_ATTEMPTS

    def _round(self, *, last: bool) -> None:
        if self._sender is None:
            self._sender = Sender(self._name, self._run, self._read)
        self._sender.send(everything=last)
        if last:
            if self._result is not None:
                self._sender.end(self._result)
            self._sender.close(finished=self._result is not None)

    def _fail(self, error: Exception) -> None:
        self._failure = " ".join(str(error).split())[:_REASON_CHARACTERS] or type(error).__name__
        if not self._warned:
            self._warned = True
            log.warn(f"{self._name} was not updated, the training goes on: {self._failure}")
        sender, self._sender = self._sender, None
        try:
            if sender is not None:
                sender.close(finished=False)
        except Exception:  # the failure above is the one to tell of
            return


class Feeds:
    """The feeds of all trackers of a run."""

    def __init__(self, names: tuple[str, ...], run: TrackedRun, read: Read) -> None:
        self._feeds = [Feed(name, run, read) for name in names]

    def close(self, result: Mapping[str, Any] | None = None) -> None:
        for feed in self._feeds:
            feed.close(result)
