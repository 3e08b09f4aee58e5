"""A process that has imported torch and nfdist once and forks a child for every command it is asked to run.

Started as a script, with the folder of the code under test as its argument. Requests and replies are lines of JSON on
stdin and stdout. It imports nothing of the tests, since the code under test may be of any commit.
"""

import atexit
import contextlib
import dataclasses
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import threading
import time
import traceback
from typing import Any, Literal, NoReturn, get_origin

COMMANDS = ("train", "evaluate", "predict", "partition", "inspect", "plan")
LOADED_LATE = ("pyarrow.parquet", "pyarrow.csv", "scipy.sparse.csgraph", "torch._dynamo")
LOADED_RARELY = ("sklearn.metrics",)


def main(code: str, lean: bool) -> None:
    sys.path[0] = code  # instead of the folder of this script
    late = LOADED_LATE if lean else LOADED_LATE + LOADED_RARELY
    commands = [importlib.import_module(f"nfdist.cli.{command}") for command in COMMANDS]
    for name in (*(name for command in commands for name in getattr(command, "LOADS", ())), *late):
        importlib.import_module(name)
    with contextlib.suppress(importlib.import_module("nfdist.errors").ConfigError):  # not every Python has DGL
        importlib.import_module("nfdist.sparse.dgl_door").dgl()
    nfdist = importlib.import_module("nfdist")
    assert nfdist.__file__ is not None
    assert nfdist.__file__.startswith(code + os.sep), f"{nfdist.__file__} is not the code under test"
    assert threading.active_count() == 1, "a fork would lose the other threads"
    gc.freeze()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anybody prints must not look like a reply
    _answer(replies, {"settings": _settings(), "recipe": _recipe_keys()})
    for line in sys.stdin:
        _answer(replies, _run(json.loads(line), replies.fileno()))


def _answer(replies: Any, reply: dict[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


def _settings() -> dict[str, str]:
    """Every setting of nfdist.config by its full name, with its type."""
    return _types(importlib.import_module("nfdist.config").Config, "")


def _types(section: type, prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for field in dataclasses.fields(section):
        name = prefix + field.name
        if isinstance(field.type, type) and dataclasses.is_dataclass(field.type):
            found |= _types(field.type, f"{name}.")
        else:
            found[name] = _type(field)
    return found


def _recipe_keys() -> dict[str, str]:
    """Every key of a recipe, with its type."""
    recipe = importlib.import_module("nfdist.partitioning.recipe").Recipe
    options = importlib.import_module("nfdist.partitioning.sources").SourceOptions
    keys = {field.name: _type(field) for kind in (recipe, options) for field in dataclasses.fields(kind)}
    return {name: kind for name, kind in keys.items() if name != "options"}


def _type(field: Any) -> str:
    if get_origin(field.type) is Literal:
        return "str"
    return field.type.__name__ if isinstance(field.type, type) else str(field.type)


def _run(request: dict[str, Any], replies: int) -> dict[str, Any]:
    """Run one command in a child and tell how it ended, in the words of a shell."""
    ready, begins = os.pipe()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(replies)
        _become_command(request, begins)
    os.close(begins)
    select.select([ready], [], [], request["seconds"])  # the end of the pipe is closed when the command begins
    os.close(ready)
    handle = os.pidfd_open(child)
    ended, sent = False, False
    try:
        if request.get("signal"):
            ended = _ends_within(handle, request["after"])
            if not ended:
                os.kill(child, request["signal"])
                sent = True
        ended = ended or _ends_within(handle, request["seconds"])
        if not ended:
            os.killpg(child, signal.SIGKILL)
    finally:
        os.close(handle)
    _, status, usage = os.wait4(child, 0)
    with contextlib.suppress(ProcessLookupError):  # what the command may have started
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    return {
        "code": 128 - code if code < 0 else code,
        "killed": code < 0,
        "late": not ended,
        "sent": sent,
        "peak_bytes": usage.ru_maxrss * 1024,
        "seconds": time.monotonic() - started,
    }


def _ends_within(handle: int, seconds: float) -> bool:
    return bool(select.select([handle], [], [], seconds)[0])


def _become_command(request: dict[str, Any], begins: int) -> NoReturn:
    """The child: what `python -m nfdist` is once everything is imported, until the very end of its process."""
    code = 1
    try:
        os.setsid()
        for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, "stdout", 0), (2, "stderr", 0)):
            flags = flags or os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            descriptor = os.open(request.get(path, path), flags, 0o666)
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(request["folder"])
        mapped = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")  # noqa: SIM115, PTH123
        resource.setrlimit(resource.RLIMIT_AS, (mapped + request["memory_bytes"],) * 2)
        if request.get("file_bytes"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_bytes"],) * 2)
        sys.argv = ["nfdist", *request["argv"]]
        entry = importlib.import_module("nfdist.cli.main").entry
        os.close(begins)
        entry()
    except SystemExit as finished:
        code = finished.code if isinstance(finished.code, int) else int(finished.code is not None)
    except KeyboardInterrupt:
        traceback.print_exc()
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):  # the work is done, only the interpreter is not
            signal.signal(number, signal.SIG_IGN)
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    raise AssertionError


if __name__ == "__main__":
    main(os.path.realpath(sys.argv[1]), "--lean" in sys.argv)
