"""Configurations of earlier runs, read as they were meant: with keys that moved since, and without those to come.

A run holds every key there was when it was written, so that no default of today comes into it.
"""

from typing import Any

from nfdist import settings
from nfdist.config import Config
from nfdist.errors import ConfigError
from nfdist.fields import each_setting


def parse_config(text: str, source: str) -> Config:
    """The configuration of a run of any version; `source` names the text in messages."""
    (tables, _), missing = settings.renamed(settings.parse_toml(text, source)), []
    for name, field in each_setting(Config):
        table, key = _find(tables, name)
        if key in table:
            continue
        if field.metadata["before"] is None:
            missing.append(name)
        else:
            table[key] = field.metadata["before"]
    config = settings.parse(tables)  # which refuses what no version knew
    if missing:
        raise ConfigError(f"{missing[0]} is missing, which every run has: restore the file")
    return config


def _find(tables: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The table that a full name has its key in, made where there is none, and the key."""
    *sections, key = name.split(".")
    for section in sections:
        inner = tables.setdefault(section, {})
        tables = inner if isinstance(inner, dict) else {}
    return tables, key
