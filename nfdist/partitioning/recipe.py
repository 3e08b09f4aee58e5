"""Recipe: all that `nfdist partition` needs to know, from a TOML file, the command line, or both."""

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nfdist.errors import ConfigError
from nfdist.memory import parse_bytes
from nfdist.partitioning.choices import METHODS
from nfdist.partitioning.sources import SourceOptions
from nfdist.remote import refuse_uri
from nfdist.settings import convert_fields, read_toml, show

MOST_PARTS = 1 << 16  # each is a folder of files
SOURCE_KEYS = tuple(field.name for field in dataclasses.fields(SourceOptions))


@dataclass(frozen=True)
class Recipe:
    """A source, how to read it, into how many parts and where to.

    Without a method METIS divides the nodes, where it fits into `memory` or, without that, into this machine's.
    """

    source: str
    parts: int
    out: str
    method: str = ""
    assignment: str = ""
    directed: bool = False
    memory: str = ""
    options: SourceOptions = dataclasses.field(default_factory=SourceOptions)

    def __post_init__(self) -> None:
        convert_fields(self)
        if not 1 <= self.parts <= MOST_PARTS:
            raise ConfigError(f"parts must be at least 1 and at most {MOST_PARTS:,}, got {self.parts}")
        for name, what in (("source", "a dataset or a path"), ("out", "the directory to make")):
            if not getattr(self, name):
                raise ConfigError(f"{name} is empty: name {what}")
        if self.memory:
            parse_bytes("memory", self.memory)
        if self.method and self.method not in METHODS:
            raise ConfigError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        if (self.method == "file") != bool(self.assignment):
            raise ConfigError("method file and --assignment FILE go together")

    @staticmethod
    def build(source: str, given: Mapping[str, Any]) -> "Recipe":
        """The recipe of a source or a recipe file, with what was given on the command line on top."""
        merged: dict[str, Any] = {"source": source}
        if source.endswith(".toml"):
            refuse_uri("recipe", source, "copy it here, its source and its out may be elsewhere")
            merged = {"out": str(Path(source).with_suffix("")), **read_toml(Path(source))}
            if "source" not in merged:
                raise ConfigError(f"recipe {source} names no source: add source = ...")
        columns = {**_uses(merged.get("columns", {})), **_uses(given.get("columns", {}))}
        merged |= given
        if columns:
            merged["columns"] = tuple(f"{name}={use}" for name, use in columns.items())
        known = (*(field.name for field in dataclasses.fields(Recipe) if field.name != "options"), *SOURCE_KEYS)
        for key in merged:
            if key not in known:
                nearest = difflib.get_close_matches(key[:100], known, n=1, cutoff=0.0)[0]
                spelled = key if key.isidentifier() and len(key) < 100 else show(key)
                raise ConfigError(f"recipe {source} has an unknown key {spelled}: did you mean {nearest}?")
        for key, flag in (("parts", "--parts P"), ("out", "--out DIR")):
            if key not in merged:
                raise ConfigError(f"partitioning {source} needs {flag}")
        options = {key: merged.pop(key) for key in SOURCE_KEYS if key in merged}
        return Recipe(**merged, options=SourceOptions(**options))

    @property
    def memory_bytes(self) -> int | None:
        """What partitioning may hold privately; None for what this machine has."""
        return parse_bytes("memory", self.memory) if self.memory else None

    def as_dict(self) -> dict[str, Any]:
        """The recipe as a manifest records it: without the memory, which does not change what is written."""
        return {key: value for key, value in dataclasses.asdict(self).items() if key != "memory"}


def _uses(columns: Any) -> dict[str, Any]:
    """How columns are to be used: [columns.age] as = "number" in TOML, {"age": "number"}, or "age=number"."""
    if isinstance(columns, list | tuple):
        pairs = [one.rpartition("=") if isinstance(one, str) else ("", "", show(one)) for one in columns]
        return {name: use for name, _, use in pairs}
    if not isinstance(columns, Mapping):
        raise ConfigError(f'columns must be tables, as in [columns.age] as = "number", got {show(columns)}')
    uses = {}
    for name, use in columns.items():
        wanted = use.get("as") if isinstance(use, Mapping) and set(use) == {"as"} else use
        if not isinstance(wanted, str):
            raise ConfigError(f'columns.{name[:100]} must have one key, as in as = "number", got {show(use)}')
        uses[name] = wanted
    return uses
