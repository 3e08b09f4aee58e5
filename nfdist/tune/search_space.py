"""The search space: which settings a study varies and over what, as `[search]` of a configuration file says it.

[search]
"train.learning_rate" = { low = 1e-3, high = 1e-2, log = true }
"model.layers" = { low = 1, high = 3 }
"model.dropout" = [0.0, 0.2, 0.5]
"""

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, asdict, dataclass
from operator import attrgetter
from typing import Any, get_origin

from nfdist import settings
from nfdist.config import Config
from nfdist.errors import ConfigError
from nfdist.fields import each_setting

SETTINGS = dict(each_setting(Config))
# What is to be the same for all trials, or they could not be compared, and what changes nothing.
FIXED_SECTIONS = ("data", "evaluate", "run", "observe")
FIXED = ("train.seeds", "train.evaluate_every", "train.checkpoint_every", "train.keep", "train.init_from")
Value = bool | int | float | str


@dataclass(frozen=True)
class Choices:
    """One of some values."""

    values: tuple[Value, ...]

    def nearest(self, value: Any) -> Any:
        """The value, where it is one of them; else None."""
        return value if value in self.values else None

    def as_toml(self) -> list[Value]:
        return list(self.values)


@dataclass(frozen=True)
class Interval:
    """A number from `low` to `high`, both included: by its logarithm with `log`, in steps from `low` with `step`."""

    low: float
    high: float
    log: bool = False
    step: float | None = None

    def nearest(self, value: float) -> float:
        """The number in it that is nearest to a value, by the steps from `low`."""
        inside = min(max(value, self.low), self.high)
        if not self.step:
            return inside
        steps = min(round((inside - self.low) / self.step), math.floor((self.high - self.low) / self.step + 1e-9))
        return self.low + steps * self.step

    def as_toml(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}


Space = dict[str, Choices | Interval]


def parse_space(tables: Any) -> Space:
    """The search space of the section `[search]`, every name and value checked like a setting."""
    if not isinstance(tables, Mapping):
        raise ConfigError(f"search must be a section, [search] in TOML, got {settings.show(tables)}")
    space: Space = {}
    for name, given in _flat(tables):
        if name in space:
            raise ConfigError(f"[search] has {name} twice: give it once")
        field = _field(name, given)
        if isinstance(given, Mapping):
            space[name] = _interval(name, field, given)
        elif isinstance(given, list | tuple):
            space[name] = _choices(name, field, given)
        else:
            raise ConfigError(
                f"[search] {name} must be a list of values, or {{ low = ..., high = ... }}, got {settings.show(given)}"
            )
    return space


def with_values(config: Config, values: Mapping[str, Value]) -> Config:
    """A configuration with other values of some settings, checked as any configuration is."""
    tables = settings.parse_toml(settings.dump(config), "configuration")
    for name, value in values.items():
        tables = settings.merged(tables, nested(name, value))
    return settings.parse(tables)


def own_values(config: Config, space: Space) -> dict[str, Value]:
    """What a configuration has of a space, or the nearest in it; nothing of choices that it is none of."""
    found = {name: values.nearest(attrgetter(name)(config)) for name, values in space.items()}
    return {name: value for name, value in found.items() if value is not None}


def nested(name: str, value: Any) -> dict[str, Any]:
    """The tables that hold one value, by the full name of its setting."""
    for part in reversed(name.split(".")):
        value = {part: value}
    return dict(value)


def _flat(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Full names and what is given of them; `"train.learning_rate" = ...` and `train.learning_rate = ...` are alike."""
    for key, value in tables.items():
        name = prefix + key
        if isinstance(value, Mapping) and any(known.startswith(f"{name}.") for known in SETTINGS):
            yield from _flat(value, f"{name}.")
        else:
            yield name, value


def _field(name: str, given: Any) -> Field[Any]:
    if name not in SETTINGS:
        try:
            settings.parse(nested(name, given))
        except ConfigError as error:  # which names the nearest
            raise ConfigError(f"[search] {error}") from None
        raise ConfigError(f"[search] {name} is no setting: see docs/configuration.md")
    if name in FIXED or name.split(".")[0] in FIXED_SECTIONS:
        raise ConfigError(f"[search] cannot vary {name}: it is to be the same for all trials, set it outside [search]")
    if get_origin(SETTINGS[name].type) in (list, tuple):
        raise ConfigError(f"[search] cannot vary {name}: it is a list, and only single values can be searched")
    return SETTINGS[name]


def _choices(name: str, field: Field[Any], given: Sequence[Any]) -> Choices:
    if not given:
        raise ConfigError(f"[search] {name} is an empty list: give the values to choose from")
    values = tuple(_checked(f"search.{name}[{place}]", field, value) for place, value in enumerate(given))
    if len(set(values)) < len(values):
        raise ConfigError(f"[search] {name} names a value twice: {settings.show(list(given))}")
    return Choices(values)


def _interval(name: str, field: Field[Any], given: Mapping[str, Any]) -> Interval:
    known = ("low", "high", "log", "step")
    for key in given:
        if key not in known:
            nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
            raise ConfigError(f"[search] {name} has an unknown key {key}: did you mean {nearest}?")
    if field.type not in (int, float):
        raise ConfigError(f"[search] {name} is no number: give a list of values")
    if not {"low", "high"} <= given.keys():
        raise ConfigError(f"[search] {name} needs both low and high, got {', '.join(given) or 'neither'}")
    low, high = (_checked(f"search.{name}.{end}", field, given[end]) for end in ("low", "high"))
    log = settings.convert(f"search.{name}.log", given.get("log", False), bool)
    step = settings.convert(f"search.{name}.step", given["step"], field.type) if "step" in given else None
    if not low < high:
        raise ConfigError(f"[search] {name} must have low below high, got {low} and {high}")
    if log and low <= 0:
        raise ConfigError(f"[search] {name} with log needs a low above 0, got {low}")
    if log and step is not None:
        raise ConfigError(f"[search] {name} has both log and step: leave one away")
    if step is not None and not 0 < step <= high - low:
        raise ConfigError(f"[search] {name} must have a step above 0 and at most high - low, got {step}")
    return Interval(low, high, log, step)


def _checked(name: str, field: Field[Any], value: Any) -> Any:
    """A value as the type of its setting, inside of its bounds."""
    converted = settings.convert(name, value, field.type)
    if field.metadata["bounds"]:
        field.metadata["bounds"].check(name, converted)
    return converted
