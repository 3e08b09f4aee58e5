"""Where a run comes from: settings, versions, and the command that repeats it."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from nfdist import settings
from nfdist.config import Config
from nfdist.fields import each_setting
from nfdist.runs.run import CONFIG_FILE, Run


@dataclass(frozen=True)
class Setting:
    """A setting by its full name, its value and the default, in the notation of TOML."""

    name: str
    value: str
    default: str
    meaning: str

    @property
    def differs(self) -> bool:
        return self.value != self.default


@dataclass(frozen=True)
class Provenance:
    settings: tuple[Setting, ...]
    versions: dict[str, str]
    world_size: int
    command: str


def trace(run: Run, result: Mapping[str, Any] | None, state: Mapping[str, Any] | None) -> Provenance:
    """What is known of a run by its result, or before there is one by the `state` of a checkpoint."""
    told = result or state or {}
    versions = {str(name): str(value) for name, value in dict(told.get("versions") or {}).items()}
    world_size = int(told.get("world_size") or 1)
    return Provenance(_settings(run.config), versions, world_size, _command(run, world_size, versions))


def _settings(config: Config) -> tuple[Setting, ...]:
    """All settings, those that differ from the defaults first."""
    found = []
    for name, field in each_setting(Config):
        value = settings.emit(attrgetter(name)(config))
        default = settings.emit(attrgetter(name)(Config()))
        found.append(Setting(name, value, default, field.metadata["meaning"]))
    return tuple(sorted(found, key=lambda one: not one.differs))


def _command(run: Run, world_size: int, versions: Mapping[str, str]) -> str:
    path = run.path.absolute()
    words = ["train", str(path / CONFIG_FILE), f"run.dir={path}-again"]
    if world_size == 1:
        return shlex.join(["nfdist", *words])
    threads = versions.get("threads", "1")
    launch = ["torchrun", "--standalone", "--nproc-per-node", str(world_size), "-m", "nfdist"]
    return f"OMP_NUM_THREADS={threads} {shlex.join([*launch, *words])}"
