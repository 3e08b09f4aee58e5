"""Completion as real shells do it: commands, options, choices, settings and their values, paths."""

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nfdist.cli.completion import commands, settings
from nfdist.cli.main import COMMANDS, main, make_parser
from nfdist.cli.shell_scripts import SCRIPTS
from nfdist.config import Config
from nfdist.fields import each_setting

ASK_BASH = """\
source {script}
complete -p nfdist
compopt() {{ local IFS=' '; printf 'compopt %s\\n' "$*"; }}
COMP_LINE={line}; COMP_POINT=${{#COMP_LINE}}
_nfdist
printf 'reply %s\\n' "${{COMPREPLY[@]}}"
"""
# What may follow, in all shells: some of the words that are offered, and some that are not.
CASES = [
    ("nfdist ", {"doctor", "train", "completion"}, {"--json"}),
    ("nfdist pa", {"partition"}, {"plan"}),
    ("nfdist train --re", {"--resume"}, {"--json"}),
    ("nfdist partition --method ", {"metis", "random", "file"}, {"--parts", "--method"}),
    ("nfdist completion ", {"bash", "zsh", "fish"}, {"train"}),
    ("nfdist clean --what st", {"states"}, {"hops"}),
    ("nfdist evaluate run --device c", {"cpu", "cuda"}, {"auto"}),
]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    words = (commands(), settings())
    for shell, make in SCRIPTS.items():
        (folder / shell).write_text(make(*words))
    return folder


def ask_bash(scripts: Path, line: str, folder: Path | None = None) -> list[str]:
    text = ASK_BASH.format(script=scripts / "bash", line=shlex.quote(line))
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True, cwd=folder)
    assert done.stderr == ""
    first, *lines = done.stdout.splitlines()
    assert first == "complete -F _nfdist nfdist"
    return [line.removeprefix("reply ") for line in lines]


def ask_fish(scripts: Path, line: str) -> list[str]:
    text = f"source {scripts}/fish; complete -C {shlex.quote(line)}"
    done = subprocess.run(["fish", "-N", "-c", text], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


def ask_zsh(scripts: Path, line: str) -> list[str]:
    """What an interactive zsh shows after two tabs: only there does it complete."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="dumb", COLUMNS="200")
        os.execvp("zsh", ["zsh", "-f", "-i"])
    ready = "PS1=; autoload -U compinit; compinit -u -D; LISTMAX=9999; "
    os.write(terminal, f"{ready}source {scripts}/zsh; echo REA''DY\n".encode())
    _read_until(terminal, lambda shown: "READY" in shown)
    os.write(terminal, f"{line}\t\t".encode())
    shown = _read_until(terminal, lambda shown: False, 1.5)
    os.write(terminal, b"\x03exit\n")
    _read_until(terminal, lambda shown: False, 0.3)
    os.close(terminal)
    os.waitpid(child, 0)
    return shown.removeprefix(line).split()


def _read_until(terminal: int, happens: Callable[[str], bool], seconds: float = 30.0) -> str:
    shown, ends = "", time.monotonic() + seconds
    while not happens(shown) and time.monotonic() < ends:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                shown += os.read(terminal, 1 << 16).decode(errors="replace")
            except OSError:  # it has ended
                break
    return shown


@pytest.mark.parametrize(("line", "offered", "left_out"), CASES)
def test_bash(scripts: Path, line: str, offered: set[str], left_out: set[str]) -> None:
    found = set(ask_bash(scripts, line))
    assert offered <= found
    assert not left_out & found


def test_bash_completes_settings_and_their_values_though_it_cuts_words_at_equals_signs(scripts: Path) -> None:
    found = ask_bash(scripts, "nfdist train x.toml train.early_stop")
    assert {"train.early_stop=", "train.early_stop_on="} <= set(found)
    assert ask_bash(scripts, "nfdist train x.toml model.channe") == ["compopt -o nospace", "model.channels="]
    assert ask_bash(scripts, "nfdist tune x.toml train.early_stop_on=b") == ["both"]
    assert set(ask_bash(scripts, "nfdist compare x.toml model.norm=")) == {"layer", "batch", "none"}
    assert ask_bash(scripts, "nfdist partition x --method=r") == ["random"]
    assert "model.norm=" not in ask_bash(scripts, "nfdist evaluate ")


def test_bash_completes_paths(scripts: Path, tmp_path: Path) -> None:
    (tmp_path / "graph one").mkdir()
    (tmp_path / "grammar.toml").touch()
    both = ["compopt -o filenames", "graph one", "grammar.toml"]
    assert sorted(ask_bash(scripts, "nfdist train gra", tmp_path)) == sorted(both)
    assert sorted(ask_bash(scripts, "nfdist tune x data.partition=gra", tmp_path)) == sorted(both)
    assert sorted(ask_bash(scripts, "nfdist evaluate x --partition gra", tmp_path)) == sorted(both)
    assert ask_bash(scripts, "nfdist evaluate x --count gra", tmp_path) == [""]  # a number


@pytest.mark.parametrize(("line", "offered", "left_out"), CASES)
def test_fish(scripts: Path, line: str, offered: set[str], left_out: set[str]) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed: apt-get install fish")
    found = set(ask_fish(scripts, line))
    assert offered <= found
    assert not left_out & found


def test_fish_completes_settings(scripts: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed: apt-get install fish")
    assert "train.early_stop_on=both" in ask_fish(scripts, "nfdist train x train.early_stop_on=b")  # and files
    assert "model.norm=none" not in ask_fish(scripts, "nfdist evaluate model.n")


ZSH_CASES = [*(case[:2] for case in CASES[:1] + CASES[3:5]), ("nfdist tune x model.norm=", {"layer", "batch", "none"})]


@pytest.mark.parametrize(("line", "offered"), ZSH_CASES)
def test_zsh(scripts: Path, line: str, offered: set[str]) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed: apt-get install zsh")
    assert offered <= set(ask_zsh(scripts, line))


def test_every_option_and_setting_is_in_every_script(scripts: Path) -> None:
    _, parsers = make_parser(COMMANDS)
    options = {text for parser in parsers.values() for action in parser._actions for text in action.option_strings}
    options -= {"--worker"}  # of the study's own processes
    names = [name for name, _ in each_setting(Config)]
    for shell in SCRIPTS:
        text = (scripts / shell).read_text()
        wanted = (
            options
            if shell != "fish"
            else {f"-{'l' * option.startswith('--') or 's'} {option.lstrip('-')}" for option in options}
        )
        assert not [word for word in (*wanted, *names) if word not in text], shell
        assert "--worker " not in text
    assert all(word.values for word in settings() if word.name in ("model.name", "model.residual", "run.device"))


def test_what_is_printed_is_the_script(scripts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == (scripts / "bash").read_text()
    assert main(["completion", "tcsh"]) == 2
    assert len(re.findall("\n", capsys.readouterr().err)) == 1
