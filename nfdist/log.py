"""What nfdist tells its user while it works, always on stderr: stdout belongs to results."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    import rich.progress


class Progress(Protocol):
    """Something that can be told how far the work has come."""

    def advance(self, n: int = 1, note: str = "") -> None: ...


def notice(text: str, stream: TextIO | None = None) -> None:
    """Tell the user something in one line."""
    # The stream is looked up at each call, since a live progress bar stands in for sys.stderr to print above itself.
    stream = stream or sys.stderr
    if stream is None:  # as it is when the command was started without one
        return
    with suppress(OSError, ValueError):  # nobody listens any more, or there is no room: no reason to end the work
        print("nfdist:", *(line.strip() for line in text.splitlines()), file=stream, flush=True)


def warn(text: str, stream: TextIO | None = None) -> None:
    """Tell the user in one line about something that may not be as intended."""
    notice(f"warning: {text}", stream)


class Silent:
    """Progress that is shown elsewhere, as by another rank."""

    def advance(self, n: int = 1, note: str = "") -> None:
        pass


@contextmanager
def progress(
    total: int, title: str, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Progress]:
    """Show work of `total` steps: a bar on a terminal or in a notebook, otherwise a line now and then."""
    stream = stream or sys.stderr
    bars = _make_bars(stream) if stream is not None and not stream.closed and stream.isatty() else None
    if bars is not None and bars.console.is_interactive:
        with bars:
            yield _Bar(bars, bars.add_task(title, total=total, note=""))
    else:
        lines = (_RedrawnLine if in_notebook(stream) else _Lines)(total, title, stream, clock)
        try:
            yield lines
        finally:
            lines.finish()


def in_notebook(stream: TextIO | None) -> bool:
    """Whether this is the output of a Jupyter cell: no terminal, but a line can be drawn again there."""
    return type(stream).__module__.startswith("ipykernel.")


def _make_bars(stream: TextIO) -> "rich.progress.Progress":
    from rich import progress as columns  # here, since a log needs none of rich
    from rich.console import Console

    return columns.Progress(
        columns.TextColumn("{task.description}", markup=False),
        columns.BarColumn(),
        columns.TaskProgressColumn(),
        columns.TimeElapsedColumn(),
        columns.TimeRemainingColumn(),
        columns.TextColumn("{task.fields[note]}", markup=False),
        console=Console(file=stream),
        redirect_stdout=False,  # or results on their way to a pipe would be drawn above the bar instead
    )


class _Bar:
    """A bar that is redrawn in place."""

    def __init__(self, bars: "rich.progress.Progress", task: "rich.progress.TaskID") -> None:
        self._bars, self._task = bars, task

    def advance(self, n: int = 1, note: str = "") -> None:
        if note:
            self._bars.update(self._task, note=note)
        self._bars.advance(self._task, n)


class _Lines:
    """Plain lines: one at the start, one at the end, and between them one every few seconds at most."""

    seconds_between = 5.0

    def __init__(self, total: int, title: str, stream: TextIO, clock: Callable[[], float]) -> None:
        self._total, self._title, self._stream, self._clock = total, title, stream, clock
        self._done, self._note, self._started = 0, "", clock()
        self._print(self._started)

    def advance(self, n: int = 1, note: str = "") -> None:
        self._done += n
        self._note = note or self._note
        now = self._clock()
        if now - self._printed_at >= self.seconds_between:
            self._print(now)

    def finish(self) -> None:
        if self._done > self._printed_done:
            self._print(self._clock())

    def _print(self, now: float) -> None:
        self._printed_at, self._printed_done = now, self._done
        elapsed = now - self._started
        line = f"{self._title}: {self._done}/{self._total}"
        if self._done:
            remaining = elapsed * max(self._total - self._done, 0) / self._done
            line += f" ({100 * self._done // max(self._total, 1)}%), {_clock_time(elapsed)} elapsed"
            line += f", {_clock_time(remaining)} remaining" if self._done < self._total else ""
        self._show(f"{line}, {self._note}" if self._note else line)

    def _show(self, line: str) -> None:
        notice(line, self._stream)


class _RedrawnLine(_Lines):
    """One line with a bar, drawn again in place; rich's own bars in a notebook would need widgets."""

    seconds_between = 0.2
    _width = 30
    _longest = 0

    def finish(self) -> None:
        super().finish()
        print(file=self._stream)

    def _show(self, line: str) -> None:
        full = self._width * min(self._done, self._total) // max(self._total, 1)
        shown = f"{'█' * full}{'░' * (self._width - full)} {line}"
        self._longest = max(len(shown), self._longest)
        print(f"\r{shown:{self._longest}}", end="", file=self._stream, flush=True)


def _clock_time(seconds: float) -> str:
    minutes, whole = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{whole:02}"
