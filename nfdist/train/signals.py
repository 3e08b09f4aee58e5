"""Being asked to stop: SIGTERM (Slurm, Kubernetes, torchrun) and Ctrl-C end training after the step at hand."""

import signal
from types import FrameType, TracebackType
from typing import Any


class StopRequest:
    """Remembers a signal instead of dying of it; a second Ctrl-C interrupts as usual."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopRequest":
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def heed(self) -> None:
        """All ranks stop now: a SIGTERM that comes later, another rank having had its own first, means nothing more."""
        self._before[signal.SIGTERM] = signal.SIG_IGN

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received == signal.SIGINT == number:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
