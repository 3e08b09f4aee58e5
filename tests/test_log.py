"""Progress is a bar on a terminal and a few lines in a log, and stdout is never touched."""

import io
import os
import sys

import pytest

from nfdist.log import notice, progress, warn


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that moves only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_messages_are_one_line_each_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    notice("reading  'a  b'")
    warn("edge weights\n  are dropped")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "nfdist: reading  'a  b'\nnfdist: warning: edge weights are dropped\n"


def test_messages_go_to_a_given_stream() -> None:
    stream = io.StringIO()
    notice("here", stream)
    assert stream.getvalue() == "nfdist: here\n"


class Cell(io.StringIO):
    """Stands in for what a Jupyter kernel has as sys.stderr."""


Cell.__module__ = "ipykernel.iostream"


def test_a_notebook_has_one_line_that_is_drawn_again() -> None:
    stream, clock = Cell(), Clock()
    with progress(4, "train", stream, clock) as work:
        for step in range(4):
            clock.now += 1
            work.advance(note=f"loss {step}")
    content = stream.getvalue()
    assert content.count("\n") == 1
    assert content.endswith("\n")
    drawn = content.rstrip("\n").split("\r")[1:]
    assert [line.count("█") for line in drawn] == [0, 7, 15, 22, 30]
    assert len(drawn[-1]) == max(map(len, drawn)), "a shorter line covers a longer one"
    assert "train: 4/4 (100%), 0:00:04 elapsed, loss 3" in drawn[-1]


def test_log_has_first_and_last_line_and_one_in_five_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    with progress(100, "train", stream, clock) as work:
        for step in range(100):
            clock.now += 0.125
            work.advance(note=f"loss {step}")
    assert stream.getvalue().splitlines() == [
        "nfdist: train: 0/100",
        "nfdist: train: 40/100 (40%), 0:00:05 elapsed, 0:00:07 remaining, loss 39",
        "nfdist: train: 80/100 (80%), 0:00:10 elapsed, 0:00:02 remaining, loss 79",
        "nfdist: train: 100/100 (100%), 0:00:12 elapsed, loss 99",
    ]


def test_log_does_not_repeat_the_last_line() -> None:
    stream, clock = io.StringIO(), Clock()
    with progress(1, "partition", stream, clock) as work:
        clock.now += 3723
        work.advance()
    assert stream.getvalue().splitlines() == [
        "nfdist: partition: 0/1",
        "nfdist: partition: 1/1 (100%), 1:02:03 elapsed",
    ]


def test_log_says_how_far_failed_work_came() -> None:
    stream = io.StringIO()

    def fail() -> None:
        with progress(4, "train", stream, Clock()) as work:
            work.advance(3)
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        fail()
    assert "train: 3/4 (75%)" in stream.getvalue().splitlines()[-1]


@pytest.mark.parametrize("total", [0, 2])
def test_work_may_be_empty_or_exceed_its_total(total: int) -> None:
    for stream in (io.StringIO(), Terminal()):
        with progress(total, "train", stream) as work:
            work.advance(5)
        assert "train" in stream.getvalue()


def test_terminal_shows_a_bar_with_percent_and_note() -> None:
    stream = Terminal()
    with progress(4, "train [fast]", stream) as work:
        work.advance(3)
        work.advance(note="loss [0.5] {x}")
    shown = stream.getvalue()
    assert "\r" in shown
    for part in ("train [fast]", "100%", "0:00:00", "loss [0.5] {x}"):
        assert part in shown


def test_terminal_that_cannot_redraw_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with progress(2, "train", stream) as work:
        work.advance(2)
    assert stream.getvalue().splitlines()[0] == "nfdist: train: 0/2"


def test_bar_leaves_stdout_alone_and_messages_pass_above_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress(2, "train") as work:
        print("result")
        warn("careful")
        work.advance(2)
    assert capsys.readouterr().out == "result\n"
    assert "nfdist: warning: careful" in terminal.getvalue()


def test_nobody_who_listens_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    closed = io.StringIO()
    closed.close()
    with os.fdopen(writer, "w") as broken:
        for stream in (None, closed, broken):
            monkeypatch.setattr(sys, "stderr", stream)
            notice("hello")
            with progress(2, "work") as shown:
                shown.advance()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)  # or it would fail once more when closed
