"""nfdist completion: a script for a shell, made once from the parsers, so that no TAB waits for Python.

source <(nfdist completion bash)        in ~/.bashrc
source <(nfdist completion zsh)         in ~/.zshrc, after compinit
nfdist completion fish | source         in ~/.config/fish/config.fish
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from nfdist.cleaning.kinds import KINDS
from nfdist.cli.shell_scripts import SCRIPTS
from nfdist.config import Config
from nfdist.fields import each_setting
from nfdist.model.names import MODEL_NAMES

LOADS = ()
EXAMPLES = (
    ("nfdist completion bash >~/.local/share/bash-completion/completions/nfdist", "bash, from its next start on"),
    ("nfdist completion zsh >~/.zfunc/_nfdist", "zsh, where that folder is in fpath"),
    ("nfdist completion fish >~/.config/fish/completions/nfdist.fish", "fish"),
)
PATH_WORDS = ("DIR", "FILE", "SOURCE", "CONFIG", "PARTITION", "NEW")  # in what a word is called that may be a path
# What no parser tells: lists of names.
NAMES = {"clean --what": tuple(KINDS), "compare --models": MODEL_NAMES}
SETTING_VALUES = {"model.name": MODEL_NAMES}
SETTING_PATHS = ("data.partition", "run.dir", "train.init_from")


@dataclass(frozen=True)
class Word:
    """An option or a setting: the values it takes, whether that may be a path, and what it means."""

    name: str
    meaning: str
    takes_value: bool
    values: tuple[str, ...] = ()
    path: bool = False


@dataclass(frozen=True)
class CommandWords:
    """What may follow a command: options, plain words (their values, or paths), and settings where it takes them."""

    name: str
    purpose: str
    options: tuple[Word, ...]
    values: tuple[str, ...]
    paths: bool
    settings: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="which shell the script is for")


def run(options: argparse.Namespace) -> int:
    print(SCRIPTS[options.shell](commands(), settings()), end="")
    return 0


def commands() -> list[CommandWords]:
    """Every command with its words, as its parser has them."""
    from nfdist.cli.main import COMMANDS, make_parser  # here, since that module imports this one

    _, parsers = make_parser(COMMANDS)
    return [_words_of(name, COMMANDS[name], parser._actions) for name, parser in parsers.items()]


def settings() -> list[Word]:
    """Every setting, with the values of those that have a choice."""
    found = []
    for name, field in each_setting(Config):
        values: tuple[str, ...] = SETTING_VALUES.get(name, ())
        if get_origin(field.type) is Literal:
            values = tuple(map(str, get_args(field.type)))
        elif field.type is bool:
            values = ("true", "false")
        found.append(Word(name, field.metadata["meaning"], True, values, name in SETTING_PATHS))
    return found


def _words_of(name: str, purpose: str, actions: Sequence[argparse.Action]) -> CommandWords:
    shown = [action for action in actions if action.help != argparse.SUPPRESS]
    options = [_option(name, text, action) for action in shown for text in action.option_strings]
    plain = [action for action in shown if not action.option_strings and action.dest != "overrides"]
    values = tuple(str(choice) for action in plain for choice in action.choices or ())
    paths = any(_is_path(action) for action in plain)
    return CommandWords(name, purpose, tuple(options), values, paths, any(one.dest == "overrides" for one in actions))


def _option(command: str, name: str, action: argparse.Action) -> Word:
    values = NAMES.get(f"{command} {name}") or tuple(map(str, action.choices or ()))
    return Word(name, str(action.help or ""), action.nargs != 0, values, _is_path(action))


def _is_path(action: argparse.Action) -> bool:
    metavar: Any = action.metavar or ""
    return any(word in str(metavar) for word in PATH_WORDS)
