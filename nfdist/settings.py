"""Configuration files: TOML and `section.key=value` overrides in, a checked Config out, and TOML again.

Sections, keys and types are read off the dataclasses of nfdist.config, so a new setting is declared once, there.
"""

import dataclasses
import difflib
import json
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from nfdist import log
from nfdist.config import Config
from nfdist.errors import ConfigError
from nfdist.fields import check_choice, each_setting

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_WORDS = {
    str: ("a string in double quotes", "strings in double quotes"),
    bool: ("true or false", "true or false"),
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
}
_INTEGERS = range(-(1 << 63), 1 << 63)  # TOML's; Python's have no end, and beyond 4,300 digits no decimal notation
_SHOWN_CHARACTERS = 100


def load(path: Path, overrides: Sequence[str] = ()) -> Config:
    """The configuration of a TOML file, with `section.key=value` overrides on top."""
    return parse(read_toml(path), overrides)


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, or one line that says why there are none."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        cure = "name a TOML file or a partition"
        if isinstance(error, IsADirectoryError):
            reason, cure = "a folder that is no partition", f"{cure}; a run goes on by its TOML file and --resume"
        raise ConfigError(f"configuration {str(path)!r} cannot be read ({reason}): {cure}") from error
    return parse_toml(text, str(path))


def parse(
    tables: str | Mapping[str, Any],
    overrides: Sequence[str] = (),
    source: str = "configuration",
    below: Mapping[str, Any] | None = None,
) -> Config:
    """The configuration of TOML text or of a mapping of sections; `source` names the text in messages.

    What neither gives is taken from `below`, a mapping of sections too, and from the defaults last of all.
    """
    if isinstance(tables, str):
        tables = parse_toml(tables, source)
    given = [renamed(one) for one in (below or {}, tables, *map(_parse_override, overrides))]
    built: Config = _build("", Config, [tables for tables, _ in given])
    moved = [name for _, names in given for name in names]
    if moved:
        log.notice(f"settings have other names now: {', '.join(moved)}")
    return built


def merged(tables: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables with others on top, section by section."""
    both = dict(tables)
    for key, value in over.items():
        below = both.get(key)
        both[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return both


def renamed(tables: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tables with settings under the names of today, and which moved, as "model.anchors is model.idgl.anchors"."""
    copied: dict[str, Any] = {key: dict(one) if isinstance(one, Mapping) else one for key, one in tables.items()}
    moved = []
    for name, field in each_setting(Config):
        was = field.metadata.get("was", "")
        section, _, key = was.partition(".")
        table = copied.get(section)
        if not was or not isinstance(table, dict) or key not in table:
            continue
        *_, inner, own_key = name.split(".")
        nested = table.setdefault(inner, {})
        if not isinstance(nested, Mapping) or own_key in nested:
            raise ConfigError(f"{was} is now {name}: give it once")
        table[inner] = {**nested, own_key: table.pop(key)}
        moved.append(f"{was} is {name}")
    return copied, moved


def dump(config: Config) -> str:
    """The resolved configuration as TOML, every key written out, such that parse(dump(config)) == config."""
    return "\n".join(_emit_tables("", config))


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """The tables of TOML text; `source` names it in messages."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        last_line = len(text.rstrip().splitlines())
        reason = str(error).replace("at end of document", f"at line {last_line}, the end of the file")
        raise ConfigError(f"{source} is not valid TOML: {reason}") from error


def _parse_override(override: str) -> dict[str, Any]:
    """The tables of an override, which hold one value: a TOML value where the text is one, else the text."""
    name, equals, text = override.partition("=")
    *sections, key = name.strip().split(".", 2)  # the most that any setting has
    if not (equals and sections and all(sections) and key):
        raise ConfigError(f"override {override!r} must be section.key=value, such as model.heads=4")
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        table = {}
    # More than one key means a line break in the text: then it is no single TOML value.
    tables = {key: table["value"] if len(table) == 1 else text}
    for section in reversed(sections):
        tables = {section: tables}
    return tables


def _build(name: str, kind: type, tables: Sequence[Any]) -> Any:
    """A section's dataclass from its tables, of which later ones win; the whole configuration has no name."""
    hints, given = get_type_hints(kind), dict[str, list[Any]]()
    for table in tables:
        if not isinstance(table, Mapping):
            raise ConfigError(f"{name} must be a section of settings, [{name}] in TOML, got {show(table)}")
        for key, value in table.items():
            if key not in hints:
                _refuse(name, key, hints)
            given.setdefault(key, []).append(value)
    built = {}
    for key, values in given.items():
        own, wanted = f"{name}.{key}" if name else key, hints[key]
        nested = isinstance(wanted, type) and is_dataclass(wanted)
        built[key] = _build(own, wanted, values) if nested else convert(own, values[-1], wanted)
    return kind(**built)


def convert(name: str, value: Any, wanted: Any) -> Any:
    """The value as the type wanted: exact, since True is an int to Python, but an integer may stand for a number.

    A setting that may be left out is declared as `str | None`; given, it is a string.
    """
    if isinstance(wanted, types.UnionType):
        wanted = next(kind for kind in get_args(wanted) if kind is not types.NoneType)
    if get_origin(wanted) is Literal:
        value = convert(name, value, type(get_args(wanted)[0]))
        check_choice(name, value, wanted)
        return value
    if get_origin(wanted) in (list, tuple):
        item = get_args(wanted)[0]
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{name} must be a list of {_WORDS[item][1]}, got {show(value)}")
        return get_origin(wanted)(convert(f"{name}[{index}]", entry, item) for index, entry in enumerate(value))
    if wanted not in _WORDS:
        raise TypeError(f"{name} is declared as {wanted}, which no TOML value becomes: extend nfdist.settings")
    try:
        if wanted is float and type(value) is int:
            return float(value)
        if wanted is int and type(value) is int and value not in _INTEGERS:
            raise OverflowError("integers have at most 64 bits")
        if wanted is str and type(value) is str and "\0" in value:
            raise ValueError("no name or path has a NUL")
        if type(value) is wanted:
            # Undecodable bytes of a command line arrive as lone surrogates, which no TOML file can hold.
            return value if wanted is not str else value.encode().decode()
    except (OverflowError, ValueError) as error:
        raise ConfigError(f"{name} cannot be {show(value)}: {error}") from error
    raise ConfigError(f"{name} must be {_WORDS[wanted][0]}, got {show(value)}")


def convert_fields(settings: Any) -> None:
    """Give every field of a frozen dataclass the type that it declares, or refuse its value; for its __post_init__."""
    for name, wanted in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if not dataclasses.is_dataclass(value) and not (value is None and isinstance(wanted, types.UnionType)):
            object.__setattr__(settings, name, convert(name, value, wanted))


def _refuse(section: str, key: str, keys: Mapping[str, Any]) -> NoReturn:
    """Name what was meant by a key that a section does not have: the same elsewhere, or the nearest."""
    name, known = f"{section}.{key}" if section else key, dict(each_setting(Config))
    sections = (other.rpartition(".")[0] for other in known)
    elsewhere = next((other for other in (*known, *sections) if other.endswith(f".{key}")), None)
    if section:
        meant = elsewhere or f"{section}.{_nearest(key, keys)}"
        raise ConfigError(f"unknown setting {name}: did you mean {meant}?")
    meant = f"the setting {elsewhere}" if elsewhere in known else elsewhere or _nearest(key, keys)
    raise ConfigError(f"unknown section {name}: did you mean {meant}?")


def _nearest(name: str, names: Mapping[str, Any]) -> str:
    return difflib.get_close_matches(name, list(names), n=1, cutoff=0.0)[0]


def show(value: Any) -> str:
    """A refused value, written as its user did where that can be told, and cut where it is long."""
    text = "a value of thousands of digits"
    for notation in (emit, ascii):  # the second for dates and tables, which no setting is, and for undecodable bytes
        try:
            text = notation(value)
            text.encode()
            break
        except (TypeError, ValueError, RecursionError):
            continue
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _emit_tables(name: str, section: Any) -> Iterator[str]:
    """A section's own keys as a table, then the sections in it."""
    values = {one.name: getattr(section, one.name) for one in dataclasses.fields(section)}
    lines = [f"{key} = {emit(value)}\n" for key, value in values.items() if not is_dataclass(value)]
    if lines:
        yield f"[{name}]\n" + "".join(lines)
    for key, value in values.items():
        if is_dataclass(value):
            yield from _emit_tables(f"{name}.{key}" if name else key, value)


def emit(value: Any) -> str:
    """A value in TOML's notation, which Python's own matches for integers and floats, exponents and inf included."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, except that TOML also wants DEL escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(emit, value))}]"
    if isinstance(value, int | float):
        return repr(value)
    raise TypeError(f"no TOML for {value!r}")
