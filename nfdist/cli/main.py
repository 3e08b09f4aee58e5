"""The `nfdist` command.

A command is a module nfdist/cli/<name>.py with `add_arguments(parser)`, `run(options) -> int` and EXAMPLES, pairs of a
command line and what it does, which end its --help; and one line in COMMANDS. Only the module of the command that was
asked for is imported, and it imports at its top only what its arguments need: what takes longer, such as torch, is
imported in its functions, and named in its LOADS, to be loaded once the words were understood. So no --help and no
mistake waits for torch.

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
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from signal import SIGINT
from types import ModuleType
from typing import Any, NoReturn, TextIO

from nfdist import __version__, files
from nfdist.attempts import Attempts
from nfdist.cli.environment import check_address_space, explain, open_standard_streams, spare_pandas
from nfdist.errors import ConfigError, NfdistError
from nfdist.log import notice
from nfdist.signals import Interruptible, Stopped, exit_code, tell_of_stop

# What torch's C++ side merely remarks is not for the users of a command.
ENVIRONMENT = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
# A step is thousands of short parallel sections. Threads that spin long between them make it many times slower where
# other processes want the cores, threads that sleep at once take half as long again where none does: these spin for
# some microseconds (benchmarks/paper/waiting.py).
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "3000"}

COMMANDS = {
    "doctor": "which versions, devices, backends and limits this host has, and what will not work",
    "partition": "turn a graph into partitions on disk, once",
    "plan": "memory, traffic, disk and time of every stage, and the batch that fits, before running anything",
    "inspect": "what a partition, run or checkpoint holds, and whether its checksums hold",
    "train": "train a model on a partition, alone or under torchrun",
    "evaluate": "the exact scores of a run on its whole graph, alone or under torchrun, in bounded memory",
    "predict": "labels of nodes that training never saw, without a pass over the graph",
    "report": "one page that explains a run: curves, answers by class, attention, costs; or several side by side",
    "compare": "the baselines and NodeFormer side by side on one graph, split and seeds",
    "tune": "search for settings by validation scores, resumable, alone, with workers or under torchrun",
    "demo": "make a graph, train on it with two workers and report what came of it, in under a minute",
    "runs": "the runs of a folder: state, epoch, best score, age and size",
    "clean": "what a folder of runs and partitions could do without, and remove it",
    "completion": "a script with which a shell completes commands, options and settings",
}

# How nfdist --help groups them; a command that is not named here comes last.
GROUPS = {
    "prepare": ("doctor", "plan", "partition"),
    "train": ("train", "compare", "tune", "demo"),
    "answer": ("evaluate", "predict", "report"),
    "operate": ("runs", "inspect", "clean", "completion"),
}
EXAMPLES = (
    ("nfdist demo", "all of it on a made graph"),
    ("nfdist partition shop --parts 2 --out shop-partition", "nodes.parquet and edges.parquet of a folder"),
    ("nfdist train shop-partition run.dir=runs/shop", "with settings that suit the graph"),
    ("nfdist evaluate runs/shop", "exact scores, and predictions of every node"),
)

_STYLE: dict[str, Any] = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}
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
        options = _parse(words)
        _load_libraries(command)
        interruptible.check()  # a signal may make anything of a library that is loaded
        if process_ends and command in WITHOUT_PANDAS:
            spare_pandas()
        return int(options.run(options))
    except SystemExit as finished:  # --help and --version
        if finished.code:
            raise
        return 0
    except Exception as error:
        interruptible.check()  # which may be what a signal has become
        return _explained(error, command)


def _explained(error: Exception, command: str) -> int:
    """The exit code of a command that has failed, after one line about it; a bug is raised again."""
    if isinstance(error, NfdistError):
        _report(error)
        return 2
    if isinstance(error, BrokenPipeError):
        if not _reader_left():
            raise error
        return 0  # as if all had been read
    text = explain(error, command)
    if text is None:
        raise error
    _report(NfdistError(text))
    return 2


def _report_stop(stop: BaseException, command: str) -> int:
    """One line of the first worker; the exit code."""
    again = "continue with --resume" if command == "train" else "run the same command again"
    number = stop.signal if isinstance(stop, Stopped) else SIGINT
    tell_of_stop(f"interrupted: {again}" if number == SIGINT else f"{number.name}: stopped; {again}")
    return exit_code(number)


def _report(error: NfdistError) -> None:
    """One line; of what every worker of a job knows, the first one tells."""
    rank = os.environ.get("RANK", "0")
    if not error.everywhere:
        notice(f"rank {rank}: {error}" if "RANK" in os.environ else str(error))
    elif rank == "0":
        notice(str(error))


def make_parser(asked: Collection[str]) -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The parser of the command line and those of all commands, of which those asked for have their arguments."""
    parser = _Parser(prog="nfdist", description="NodeFormer for graphs that do not fit one worker.", **_STYLE)
    parser.add_argument("--version", action="version", version=f"nfdist {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, help="one of those below")
    parser.epilog = "\n\n".join([*_grouped(), _shown_examples(EXAMPLES), "nfdist COMMAND --help tells more."])
    parsers = {}
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(name, description=f"nfdist {name}: {purpose}.", **_STYLE)
        parsers[name] = command
        if name in asked:
            module = _import_for(name, f"nfdist.cli.{name}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
            command.epilog = "\n\n".join(
                filter(None, [command.epilog, _shown_examples(getattr(module, "EXAMPLES", ()))])
            )
    return parser, parsers


def _grouped() -> Iterator[str]:
    named = {name for names in GROUPS.values() for name in names}
    for group, names in GROUPS.items():
        rest = [name for name in COMMANDS if name not in named] if group == list(GROUPS)[-1] else []
        yield "\n".join([f"{group}:", *(f"    {name:12}{COMMANDS[name]}" for name in (*names, *rest))])


def _shown_examples(examples: Sequence[tuple[str, str]]) -> str:
    return (
        "\n".join(["examples:", *(f"    {line}\n        {meaning}" for line, meaning in examples)]) if examples else ""
    )


def _parse(words: list[str]) -> argparse.Namespace:
    asked = _asked(words)
    parser, _ = make_parser([asked] if asked in COMMANDS else [])
    if asked == "train":  # whose options take no values: argparse wants the overrides together
        words = sorted(words, key=lambda word: word.startswith("-"))
    if asked in ("compare", "plan", "tune"):
        overrides = [word for word in words if re.match(r"[a-z_]+\.[\w.]+=", word)]
        options = parser.parse_args([word for word in words if word not in overrides])
        options.overrides += overrides
        return options
    return parser.parse_args(words)


def _asked(words: list[str]) -> str | None:
    """The command: no option of the top level takes a value, so it is the first plain word."""
    return next((word for word in words if not word.startswith("-")), None)


def _load_libraries(command: str) -> None:
    """Import what a command will need, all at once, where the limits of this process leave room for it."""
    loads = getattr(sys.modules.get(f"nfdist.cli.{command}"), "LOADS", None)
    if loads != ():
        check_address_space(command)
    for module in loads or ():
        _import_for(command, module)


def _import_for(command: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or "nfdist").partition(".")[0]
        if package == "nfdist":
            raise
        raise ConfigError(
            f"{command} needs {package}, which is not installed: nfdist doctor lists what is missing"
        ) from error


def _reader_left() -> bool:
    """Whether stdout is a pipe nobody reads, as after `| head`; a break of any other pipe is a bug."""
    if sys.stdout is None:
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))
