"""Exit codes and lines of the command: a promise to scripts, so most of it is checked from outside the process."""

import os
import re
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from nfdist import __version__
from nfdist.cli import main as command_line
from nfdist.cli.main import COMMANDS, main, set_environment
from nfdist.errors import PartitionError

WITH_DEMO = """
import runpy, sys, types
demo = types.ModuleType("nfdist.cli.demo")
def add_arguments(parser): pass
def run(options):
    {body}
demo.add_arguments, demo.run = add_arguments, run
sys.modules["nfdist.cli.demo"] = demo
sys.argv = ["nfdist", "demo"]
runpy.run_module("nfdist", run_name="__main__")
"""


def python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 60, **options}
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}  # empty is off: a broken pipe shows at the flush, or with -u
    return subprocess.run([sys.executable, *arguments], text=True, env=environment, **options)


def nfdist(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return python("-m", "nfdist", *arguments, **options)


def with_demo(body: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return python("-c", WITH_DEMO.format(body=body), **options)


@pytest.fixture
def demo_runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., int]], int]:
    def call(run: Callable[..., int]) -> int:
        module = types.ModuleType("nfdist.cli.demo")
        vars(module).update(add_arguments=lambda parser: parser.add_argument("--seed", type=int, default=3), run=run)
        monkeypatch.setitem(sys.modules, "nfdist.cli.demo", module)
        return main(["demo"])

    return call


def test_help_lists_every_command_without_importing_any_package() -> None:
    script = "import sys; from nfdist.cli.main import main; print(main(['--help']), *sys.modules)"
    done = python("-c", script)
    code, *loaded = done.stdout.splitlines()[-1].split()
    assert code == "0", done.stderr
    assert not {name.partition(".")[0] for name in loaded} & {"torch", "numpy", "scipy", "pyarrow", "xxhash", "rich"}
    for name in COMMANDS:
        assert re.search(rf"^    {name}\b", done.stdout, re.MULTILINE)


def test_version() -> None:
    done = nfdist("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"nfdist {__version__}\n", "")


def test_help_of_a_command_lists_its_options() -> None:
    done = nfdist("doctor", "--help")
    assert done.returncode == 0
    assert "--json" in done.stdout


@pytest.mark.parametrize(
    "arguments", [[], ["nosuch"], ["--nosuch"], ["doctor", "--nosuch"], ["doctor", "--js"], ["doctor", "extra"]]
)
def test_wrong_arguments_are_one_line_and_exit_2(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("nfdist: ")
    assert captured.err.count("\n") == 1
    assert "--help" in captured.err


def test_wrong_argument_from_outside() -> None:
    done = nfdist("nosuch")
    assert done.returncode == 2
    assert done.stderr.startswith("nfdist: argument COMMAND: invalid choice: 'nosuch'")
    assert done.stderr.count("\n") == 1


def test_users_mistake_is_one_line_and_exit_2() -> None:
    body = r"from nfdist.errors import PartitionError; raise PartitionError('parts/ has no\n  manifest.json')"
    done = with_demo(body)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "nfdist: parts/ has no manifest.json\n"


def test_bug_is_a_traceback_and_exit_1() -> None:
    done = with_demo("return 1 // 0")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


def test_interrupt_is_one_line_and_exit_130() -> None:
    done = with_demo("raise KeyboardInterrupt")
    assert (done.returncode, done.stderr) == (130, "nfdist: interrupted: run the same command again\n")


def test_signal_after_the_end_of_a_command_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    flushed = command_line._flushed

    def stopped(code: int) -> int:
        signal.raise_signal(signal.SIGTERM)
        return flushed(code)

    monkeypatch.setattr(command_line, "_flushed", stopped)
    assert main(["--version"]) == 143
    assert capfd.readouterr().err == "nfdist: SIGTERM: stopped; run the same command again\n"


@pytest.mark.parametrize("flags", [(), ("-u",)])
def test_reader_that_left_ends_the_command_quietly(flags: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    body = "[print('line') for _ in range(100_000)]; return 0"
    for script in (["-m", "nfdist", "--help"], ["-c", WITH_DEMO.format(body=body)]):
        done = python(*flags, *script, stdout=writer)
        assert (done.returncode, done.stderr) == (0, "")
    os.close(writer)


def test_mistake_is_still_reported_when_the_reader_left() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = with_demo("print('line'); from nfdist.errors import NfdistError; raise NfdistError('no')", stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (2, "nfdist: no\n")


def test_any_other_broken_pipe_is_a_bug() -> None:
    done = with_demo("raise BrokenPipeError('a worker is gone')")
    assert done.returncode == 1
    assert "a worker is gone" in done.stderr


def test_command_gets_its_options_and_decides_the_exit_code(demo_runs: Callable[[Callable[..., int]], int]) -> None:
    assert demo_runs(lambda options: int(options.seed)) == 3


def test_every_error_of_the_tree_is_a_users_mistake(
    demo_runs: Callable[[Callable[..., int]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    def run(options: object) -> int:
        raise PartitionError("parts/ is not a partition")

    assert demo_runs(run) == 2
    assert capsys.readouterr().err == "nfdist: parts/ is not a partition\n"


def test_command_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(name: str) -> types.ModuleType:
        raise ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")

    monkeypatch.setattr("importlib.import_module", fail)
    assert main(["demo"]) == 2
    assert "demo needs torch, which is not installed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "3000"}),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, {"OMP_WAIT_POLICY": "ACTIVE"}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
    ],
)
def test_how_threads_wait_is_the_users_choice(
    chosen: dict[str, str], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    set_environment()
    assert {name: os.environ[name] for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT") if name in os.environ} == expected
