"""Completion scripts of three shells from the words of the commands; nothing in them starts Python."""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from nfdist import __version__

if TYPE_CHECKING:
    from nfdist.cli.completion import CommandWords, Word

PATH = ":path:"  # stands for any path, in the tables of the scripts

BASH = """\
# Completion of nfdist {version} in bash, made by nfdist completion bash.
_nfdist_values() {{
    case $1 in
{values}
    *) return 1 ;;
    esac
}}

_nfdist_words() {{
    case $1 in
{words}
    esac
}}

_nfdist() {{
    # The word as the user sees it: bash itself would cut it at every = and :.
    local line=${{COMP_LINE:0:COMP_POINT}} command= before= current= found= head= word
    local -a given
    read -ra given <<<"$line"
    [[ $line == *[[:space:]] ]] && given+=("")
    current=${{given[-1]}}
    ((${{#given[@]}} > 2)) && before=${{given[-2]}}
    for word in "${{given[@]:1:${{#given[@]}}-2}}"; do
        [[ $word != -* ]] && command=$word && break
    done
    if [[ -n $command && $before == -* ]] && found=$(_nfdist_values "$command $before"); then
        : # the value of an option
    elif [[ -n $command && $current == *=* ]]; then
        head=${{current%%=*}}
        if [[ $head == -* ]]; then
            found=$(_nfdist_values "$command $head")
        else
            found=$(_nfdist_values "$head")
        fi
        current=${{current#*=}}
    else
        found=$(_nfdist_words "$command")
    fi
    _nfdist_reply "$found" "$current" "$head"
}}

_nfdist_reply() {{
    local IFS=$'\\n' current=$2 candidates=${{1//{path}/}}
    COMPREPLY=($(compgen -W "$candidates" -- "$current"))
    local words=${{#COMPREPLY[@]}}
    [[ $1 == *{path}* ]] && COMPREPLY+=($(compgen -f -- "$current"))
    if ((${{#COMPREPLY[@]}} > words)); then
        compopt -o filenames
    elif [[ $words -eq 1 && ${{COMPREPLY[0]}} == *= ]]; then
        compopt -o nospace
    fi
    if [[ -n $3 && $COMP_WORDBREAKS != *=* ]]; then
        COMPREPLY=("${{COMPREPLY[@]/#/$3=}}")
    fi
}}

complete -F _nfdist nfdist
"""


def bash(commands: "Sequence[CommandWords]", settings: "Sequence[Word]") -> str:
    """For `source <(nfdist completion bash)`."""
    values = [(f"{one.name} {option.name}", option) for one in commands for option in one.options]
    values += [(setting.name, setting) for setting in settings]
    tables = [(key, _values(word)) for key, word in values if word.takes_value]
    words = [("", [one.name for one in commands] + ["--help", "--version"])]
    words += [(one.name, [*_plain(one, settings), *(option.name for option in one.options)]) for one in commands]
    return BASH.format(version=__version__, path=PATH, values=_bash_cases(tables), words=_bash_cases(words))


def _bash_cases(tables: "Iterable[tuple[str, Sequence[str]]]") -> str:
    shown = ((key, f" printf '%s\\n' {' '.join(map(shlex.quote, words))}" if words else "") for key, words in tables)
    return "\n".join(f"    {shlex.quote(key)}){text} ;;" for key, text in shown)


def _plain(command: "CommandWords", settings: "Sequence[Word]") -> list[str]:
    """What may stand where no option's value does, beside the options."""
    names = [f"{setting.name}=" for setting in settings] if command.settings else []
    return [*command.values, *names, *([PATH] if command.paths else [])]


def _values(word: "Word") -> list[str]:
    return [*word.values, *([PATH] if word.path else [])]


ZSH = """\
#compdef nfdist
# Completion of nfdist {version} in zsh, made by nfdist completion zsh.
_nfdist_settings() {{
    if compset -P '*='; then
        case ${{IPREFIX%=}} in
{values}
        esac
    else
        local -a settings=(
{settings}
        )
        _describe -t settings setting settings -S = -q
    fi
}}

_nfdist_paths_and_settings() {{
    _alternative 'settings:setting:_nfdist_settings' 'files:file:_files'
}}

_nfdist() {{
    local context state state_descr line
    typeset -A opt_args
    local -a commands=(
{commands}
    )
    _arguments -C '(- *)'{{-h,--help}}'[show help]' '(- *)--version[show the version]' \\
        '1:command:->command' '*::word:->word'
    case $state in
    command) _describe -t commands command commands ;;
    word)
        case $line[1] in
{words}
        esac
        ;;
    esac
}}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _nfdist "$@"
else
    compdef _nfdist nfdist
fi
"""


def zsh(commands: "Sequence[CommandWords]", settings: "Sequence[Word]") -> str:
    """For a file _nfdist in a folder of fpath, or `source <(nfdist completion zsh)`."""
    values = [(setting.name, _zsh_action(setting)) for setting in settings if _values(setting)]
    actions = {name: action if action.startswith("_") else f"compadd -- {action[1:-1]}" for name, action in values}
    return ZSH.format(
        version=__version__,
        values="\n".join(f"        {name}) {action} ;;" for name, action in actions.items()),
        settings="\n".join(f"            {_zsh_described(one.name, one.meaning)}" for one in settings),
        commands="\n".join(f"        {_zsh_described(one.name, one.purpose)}" for one in commands),
        words="\n".join(f"        {one.name}) _arguments {' '.join(_zsh_arguments(one))} ;;" for one in commands),
    )


def _zsh_arguments(command: "CommandWords") -> Iterator[str]:
    for option in command.options:
        text = f"{option.name}[{_zsh_escaped(option.meaning)}]"
        yield shlex.quote(f"{text}:value:{_zsh_action(option)}" if option.takes_value else text)
    if command.settings:
        yield "'*:word:_nfdist_paths_and_settings'"
    elif command.paths:
        yield "'*:path:_files'"
    elif command.values:
        yield shlex.quote(f"1:value:({' '.join(command.values)})")


def _zsh_action(word: "Word") -> str:
    return "_files" if word.path else f"({' '.join(word.values)})" if word.values else " "


def _zsh_described(name: str, meaning: str) -> str:
    return shlex.quote(f"{name}:{meaning}")


def _zsh_escaped(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


def fish(commands: "Sequence[CommandWords]", settings: "Sequence[Word]") -> str:
    """For `nfdist completion fish | source`."""
    lines = [f"# Completion of nfdist {__version__} in fish, made by nfdist completion fish.", "complete -c nfdist -f"]
    lines += [f"complete -c nfdist -n __fish_use_subcommand -l {name}" for name in ("help", "version")]
    for one in commands:
        described = f"-a {one.name} -d {_fish_quoted(one.purpose)}"
        lines.append(f"complete -c nfdist -n __fish_use_subcommand {described}")
        within = f"complete -c nfdist -n '__fish_seen_subcommand_from {one.name}'"
        lines += [f"{within} {_fish_option(option)}" for option in one.options]
        if one.values:
            lines.append(f"{within} -a {_fish_quoted(' '.join(one.values))}")
        if one.paths:
            lines.append(f"{within} -F")
    taking = " ".join(one.name for one in commands if one.settings)
    within = f"complete -c nfdist -n '__fish_seen_subcommand_from {taking}'"
    for setting in settings:
        words = [f"{setting.name}={value}" for value in setting.values] or [f"{setting.name}="]
        lines.append(f"{within} -a {_fish_quoted(' '.join(words))} -d {_fish_quoted(setting.meaning)}")
    return "\n".join(lines) + "\n"


def _fish_option(option: "Word") -> str:
    name = f"-l {option.name[2:]}" if option.name.startswith("--") else f"-s {option.name[1:]}"
    given = " -x" if option.takes_value and not option.path else " -r -F" if option.path else ""
    values = f" -a {_fish_quoted(' '.join(option.values))}" if option.values else ""
    return f"{name}{given}{values} -d {_fish_quoted(option.meaning)}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: "dict[str, Callable[[Sequence[CommandWords], Sequence[Word]], str]]" = {"bash": bash, "zsh": zsh, "fish": fish}
