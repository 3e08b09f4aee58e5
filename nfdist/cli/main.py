"""The `nfdist` command.

A command is a module nfdist/cli/<name>.py with `add_arguments(parser)` and `run(options) -> int`, and one line in
COMMANDS. Only the module of the command that was asked for is imported, so that `nfdist --help` never waits for torch.

Exit codes: 0 done, 2 a user's mistake (one line on stderr), 1 a bug (a traceback), 130 interrupted by Ctrl-C, 143
stopped by SIGTERM.
"""

import argparse
import importlib
import os
import re
import select
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from signal import SIGINT
from types import ModuleType
from typing import NoReturn, TextIO

from nfdist import __version__, files
from nfdist.attempts import Attempts
from nfdist.cli.environment import check_address_space, explain, open_standard_streams, spare_pandas
from nfdist.errors import ConfigError, NfdistError
from nfdist.log import notice
from nfdist.signals import Interruptible, Stopped, exit_code

# What torch's C++ side merely remarks is not for the users of a command.
ENVIRONMENT = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
# A step is thousands of short parallel sections. Threads that spin long between them make it many times slower where
# other processes want the cores, threads that sleep at once take half as long again where none does: these spin for
# some microseconds (benchmarks/paper/waiting.py).
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "3000"}

COMMANDS = {
    "doctor": "which versions, devices, backends and limits this host has, and what will not work",
    "partition": "turn a graph into partitions on disk, once",
    "plan": "peak memory, disk and rough time of partitioning, before running it",
    "inspect": "what a partition, run or checkpoint holds, and whether its checksums hold",
    "train": "train a model on a partition, alone or under torchrun",
    "evaluate": "the exact scores of a run on its whole graph, alone or under torchrun, in bounded memory",
    "predict": "labels of nodes that training never saw, without a pass over the graph",
    "report": "one page that explains a run: curves, answers by class, attention, costs; or several side by side",
    "compare": "the baselines and NodeFormer side by side on one graph, split and seeds",
    "tune": "search for settings by validation scores, resumable, alone, with workers or under torchrun",
    "demo": "make a graph, train on it with two workers and report what came of it, in under a minute",
}

WITHOUT_PANDAS = ("inspect", "train", "evaluate", "predict")  # the others may call ogb, which needs it


def main(argv: Sequence[str] | None = None, process_ends: bool = False) -> int:
    """Run the command line and return its exit code; bugs are raised.

    With `process_ends` no signal changes that code any more once there is one.
    """
    set_environment()
    launcher = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else None
    words = list(sys.argv[1:] if argv is None else argv)
    with Interruptible(launcher) as interruptible:
        try:
            code = _flushed(_run(words, interruptible, process_ends))
            if process_ends:
                interruptible.heed()
            return code
        except (Stopped, KeyboardInterrupt) as stop:  # here, since one may come after the command has ended, too
            interruptible.heed()
            files.abandon()
            return _report_stop(stop, _asked(words) or "nfdist")


def _flushed(code: int) -> int:
    """The exit code once stdout has been written: what it holds would fail again when the interpreter exits."""
    if sys.stderr is not None:
        try:
            sys.stderr.flush()
        except (OSError, ValueError):  # nobody reads what went wrong
            _drop(sys.stderr)
    if sys.stdout is None:  # as it is when the command was started without one
        return code
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        if not _reader_left():
            raise
        _drop(sys.stdout)
    except OSError as error:
        _drop(sys.stdout)
        notice(f"stdout cannot be written ({error.strerror}): the result is not there, give it a place with room")
        return code or 2
    return code


def _drop(stream: TextIO) -> None:
    """Let what a stream still holds go nowhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def set_environment() -> None:
    """What torch and its threads read when they are loaded, where the user did not choose."""
    defaults = ENVIRONMENT if WAITING.keys() & os.environ.keys() else {**ENVIRONMENT, **WAITING}
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def entry() -> NoReturn:
    """The installed script and `python -m nfdist`."""
    open_standard_streams()
    code = main(process_ends=True)
    if code or any(thread.daemon for thread in threading.enumerate()):
        # A thread that waits in torch for a rank that is lost would abort the process instead of ending with it, and
        # so do some libraries where memory is short.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with suppress(OSError, ValueError):
                    stream.flush()
        os._exit(code)
    sys.exit(code)


class _Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line, like every other mistake."""

    def error(self, message: str) -> NoReturn:
        mistake = ConfigError(f"{message}: see {self.prog} --help")
        mistake.everywhere = True  # the workers of a job are given the same words
        raise mistake


def _run(words: list[str], interruptible: Interruptible, process_ends: bool) -> int:
    """The exit code of a command, and one line for what its user can do something about."""
    command = _asked(words) or "nfdist"
    earlier = Attempts(os.environ).earlier_code()
    if earlier is not None:
        return earlier  # as the attempt before this one explained
    try:
        options = _loaded(words, interruptible)
        if process_ends and command in WITHOUT_PANDAS:
            spare_pandas()
        return int(options.run(options))
    except SystemExit as finished:  # --help and --version
        if finished.code:
            raise
        return 0
    except NfdistError as error:
        _report(error)
        return 2
    except BrokenPipeError:
        if not _reader_left():
            raise
        return 0  # as if all had been read
    except Exception as error:
        text = explain(error, command)
        if text is None:
            raise
        _report(NfdistError(text))
        return 2


def _loaded(words: list[str], interruptible: Interruptible) -> argparse.Namespace:
    """The parsed words and the module of their command; a signal may make anything of a library that is loaded."""
    try:
        options = _parse(words)
    except Exception:
        interruptible.check()
        raise
    interruptible.check()
    return options


def _report_stop(stop: BaseException, command: str) -> int:
    """One line of the first worker; the exit code."""
    again = "continue with --resume" if command == "train" else "run the same command again"
    number = stop.signal if isinstance(stop, Stopped) else SIGINT
    if os.environ.get("RANK", "0") == "0":
        notice(f"interrupted: {again}" if number == SIGINT else f"{number.name}: stopped; {again}")
    return exit_code(number)


def _report(error: NfdistError) -> None:
    """One line; of what every worker of a job knows, the first one tells."""
    rank = os.environ.get("RANK", "0")
    if not error.everywhere:
        notice(f"rank {rank}: {error}" if "RANK" in os.environ else str(error))
    elif rank == "0":
        notice(str(error))


def _parse(words: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="nfdist", description="NodeFormer for graphs that do not fit one worker.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"nfdist {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    asked = _asked(words)
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(name, help=purpose, description=f"nfdist {name}: {purpose}.", allow_abbrev=False)
        if name == asked:
            check_address_space(name)
            module = _import_command(name)
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    if asked == "train":  # whose options take no values: argparse wants the overrides together
        words = sorted(words, key=lambda word: word.startswith("-"))
    if asked in ("compare", "tune"):
        overrides = [word for word in words if re.match(r"[a-z_]+\.[\w.]+=", word)]
        options = parser.parse_args([word for word in words if word not in overrides])
        options.overrides += overrides
        return options
    return parser.parse_args(words)


def _asked(words: list[str]) -> str | None:
    """The command: no option of the top level takes a value, so it is the first plain word."""
    return next((word for word in words if not word.startswith("-")), None)


def _import_command(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"nfdist.cli.{name}")
    except ModuleNotFoundError as error:
        package = (error.name or "nfdist").partition(".")[0]
        if package == "nfdist":
            raise
        raise ConfigError(
            f"{name} needs {package}, which is not installed: nfdist doctor lists what is missing"
        ) from error


def _reader_left() -> bool:
    """Whether stdout is a pipe nobody reads, as after `| head`; a break of any other pipe is a bug."""
    if sys.stdout is None:
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))
