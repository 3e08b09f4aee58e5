"""Every --help ends with examples that are true, and neither it nor a mistake waits for a library."""

import argparse
import re
import shlex
import subprocess
import sys

import pytest

from nfdist.cli import main as command_line
from nfdist.cli.main import COMMANDS, EXAMPLES, GROUPS, main, make_parser

HEAVY = ("torch", "numpy", "pyarrow", "scipy", "pandas", "sklearn", "rich", "optuna", "xxhash")


def examples_of(text: str) -> list[str]:
    """The command lines that a help text ends with."""
    return re.findall(r"^    ((?:nfdist|torchrun) .*)$", text[text.rindex("examples:") :], re.MULTILINE)


def words_of(line: str) -> list[str]:
    """What an example gives to nfdist, whoever starts that and wherever its output goes."""
    words = shlex.split(line.partition(" >")[0])
    return words[words.index("nfdist") + 1 :]


def test_every_example_is_understood_by_the_parser_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        lines = examples_of(capsys.readouterr().out)
        assert 2 <= len(lines) <= 4, name
        for line in lines:
            words = words_of(line)
            assert words[0] == name, line
            options = command_line._parse(words)  # ConfigError if it is wrong
            assert isinstance(options, argparse.Namespace)
    for line, _ in EXAMPLES:
        command_line._parse(words_of(line))


def test_overrides_of_examples_are_settings() -> None:
    from nfdist import settings

    overrides = [word for name in COMMANDS for line in _lines(name) for word in words_of(line) if _is_override(word)]
    assert overrides
    for override in overrides:
        settings.parse({}, [override])


def _lines(name: str) -> list[str]:
    _, parsers = make_parser([name])
    return examples_of(parsers[name].format_help())


def _is_override(word: str) -> bool:
    return re.match(r"[a-z]+\.[a-z_.]+=", word) is not None


def test_help_names_every_command_once_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert {name for names in GROUPS.values() for name in names} <= set(COMMANDS)
    assert main(["--help"]) == 0
    shown = re.findall(r"^    (\w+) +\S", capsys.readouterr().out, re.MULTILINE)
    listed = [name for name in shown if name in COMMANDS and name != "nfdist"]
    assert sorted(listed) == sorted(COMMANDS)


@pytest.mark.parametrize("words", [["--help"], ["--nosuch"]])
def test_neither_help_nor_a_mistake_waits_for_a_library(words: list[str]) -> None:
    """In one process for all commands: whatever one of them loads would be seen."""
    program = (
        "import sys\n"
        "from nfdist.cli.main import COMMANDS, main\n"
        f"codes = {{main([name, *{words!r}]) for name in COMMANDS}}\n"
        f"print(codes, [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == f"{{{0 if words == ['--help'] else 2}}} []"


def test_what_a_command_loads_is_there() -> None:
    """A module that moved would be missed only when somebody runs the command."""
    from importlib.util import find_spec

    for name in COMMANDS:
        make_parser([name])
        for module in getattr(sys.modules[f"nfdist.cli.{name}"], "LOADS", ()):
            assert find_spec(module) is not None, (name, module)
