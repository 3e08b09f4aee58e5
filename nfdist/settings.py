"""Configuration files: TOML and `section.key=value` overrides in, a checked Config out, and TOML again.

Sections, keys and types are read off the dataclasses of nfdist.config, so a new setting is declared once, there.
"""

import dataclasses
import difflib
import json
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

from nfdist.config import Config
from nfdist.errors import ConfigError

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
        raise ConfigError(f"configuration {str(path)!r} cannot be read ({reason}): name a TOML file") from error
    return _parse_toml(text, str(path))


def parse(tables: str | Mapping[str, Any], overrides: Sequence[str] = (), source: str = "configuration") -> Config:
    """The configuration of TOML text or of a mapping of sections; `source` names the text in messages."""
    if isinstance(tables, str):
        tables = _parse_toml(tables, source)
    hints = get_type_hints(Config)
    merged: dict[str, dict[str, Any]] = {}
    for section, table in [*tables.items(), *map(_parse_override, overrides)]:
        if section not in hints:
            _refuse_section(section, hints)
        if not isinstance(table, Mapping):
            raise ConfigError(f"{section} must be a section of settings, [{section}] in TOML, got {show(table)}")
        merged.setdefault(section, {}).update(table)
    return Config(**{section: _build(section, hints[section], table) for section, table in merged.items()})


def dump(config: Config) -> str:
    """The resolved configuration as TOML, every key written out, such that parse(dump(config)) == config."""
    sections = []
    for field in dataclasses.fields(config):
        section = getattr(config, field.name)
        lines = [f"{item.name} = {_emit(getattr(section, item.name))}\n" for item in dataclasses.fields(section)]
        sections.append(f"[{field.name}]\n" + "".join(lines))
    return "\n".join(sections)


def _parse_toml(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        last_line = len(text.rstrip().splitlines())
        reason = str(error).replace("at end of document", f"at line {last_line}, the end of the file")
        raise ConfigError(f"{source} is not valid TOML: {reason}") from error


def _parse_override(override: str) -> tuple[str, dict[str, Any]]:
    """The section of an override, and its key and value: a TOML value where the text is one, else the text."""
    name, equals, text = override.partition("=")
    section, dot, key = name.strip().partition(".")
    if not (equals and dot and section and key):
        raise ConfigError(f"override {override!r} must be section.key=value, such as model.heads=4")
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        table = {}
    # More than one key means a line break in the text: then it is no single TOML value.
    return section, {key: table["value"] if len(table) == 1 else text}


def _build(section: str, kind: type, table: Mapping[str, Any]) -> Any:
    """One section's dataclass from its table."""
    hints = get_type_hints(kind)
    for key in table:
        if key not in hints:
            _refuse_key(section, key, hints)
    return kind(**{key: convert(f"{section}.{key}", value, hints[key]) for key, value in table.items()})


def convert(name: str, value: Any, wanted: Any) -> Any:
    """The value as the type wanted: exact, since True is an int to Python, but an integer may stand for a number.

    A setting that may be left out is declared as `str | None`; given, it is a string.
    """
    if isinstance(wanted, types.UnionType):
        wanted = next(kind for kind in get_args(wanted) if kind is not types.NoneType)
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


def _refuse_section(section: str, sections: Mapping[str, type]) -> NoReturn:
    for name, kind in sections.items():
        if section in get_type_hints(kind):
            raise ConfigError(f"unknown section {section}: did you mean the setting {name}.{section}?")
    raise ConfigError(f"unknown section {section}: did you mean {_nearest(section, sections)}?")


def _refuse_key(section: str, key: str, keys: Mapping[str, Any]) -> NoReturn:
    for name, kind in get_type_hints(Config).items():
        if key in get_type_hints(kind):
            raise ConfigError(f"unknown setting {section}.{key}: did you mean {name}.{key}?")
    raise ConfigError(f"unknown setting {section}.{key}: did you mean {section}.{_nearest(key, keys)}?")


def _nearest(name: str, names: Mapping[str, Any]) -> str:
    return difflib.get_close_matches(name, list(names), n=1, cutoff=0.0)[0]


def show(value: Any) -> str:
    """A refused value, written as its user did where that can be told, and cut where it is long."""
    text = "a value of thousands of digits"
    for notation in (_emit, ascii):  # the second for dates and tables, which no setting is, and for undecodable bytes
        try:
            text = notation(value)
            text.encode()
            break
        except (TypeError, ValueError, RecursionError):
            continue
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _emit(value: Any) -> str:
    """A value in TOML's notation, which Python's own matches for integers and floats, exponents and inf included."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, except that TOML also wants DEL escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_emit, value))}]"
    if isinstance(value, int | float):
        return repr(value)
    raise TypeError(f"no TOML for {value!r}")
