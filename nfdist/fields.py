"""Fields of settings: beside each its meaning, the values it takes, and what it was for runs that are older than it."""

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin

from nfdist.errors import ConfigError

T = TypeVar("T")
MOST = 10**9  # where nothing smaller follows from what a setting counts


@dataclass(frozen=True)
class Bounds:
    """The numbers a setting takes: from `least` to `most`, less than that if it is `below`, or 0 with `or_zero`."""

    least: float
    most: float = MOST
    below: bool = False
    or_zero: bool = False

    def check(self, name: str, value: float) -> None:
        """Refuse a number outside; NaN is outside of everything."""
        if self.or_zero and value == 0:
            return
        if self.below and not self.least <= value < self.most:
            raise ConfigError(f"{name} must be at least {self.least} and below {self.most}, got {value}")
        if not value >= self.least:
            raise ConfigError(f"{name} must be at least {self.least}, got {value}")
        if value > self.most:
            raise ConfigError(f"{name} must be at most {self.most}, got {value}")


def setting(default: T, meaning: str, bounds: Bounds | None = None, *, before: T | None = None, was: str = "") -> T:
    """A field of a section.

    Runs that were written before the setting existed had the value `before`, whatever the default is now; `was` is the
    full name that it had in earlier versions.
    """
    return field(default=default, metadata={"meaning": meaning, "bounds": bounds, "before": before, "was": was})


def each_setting(kind: type, prefix: str = "") -> Iterator[tuple[str, Field[Any]]]:
    """Every setting of a dataclass and of the sections in it, with its full name, such as model.idgl.anchors."""
    for one in fields(kind):
        if is_dataclass(one.type):
            yield from each_setting(one.type, f"{prefix}{one.name}.")  # type: ignore[arg-type]
        else:
            yield prefix + one.name, one


def check_fields(section: str, settings: Any) -> None:
    """Refuse what is none of a field's choices or outside its bounds; for the __post_init__ of a section."""
    for one in fields(settings):
        name, value = f"{section}.{one.name}", getattr(settings, one.name)
        check_choice(name, value, one.type)
        if one.metadata.get("bounds"):
            one.metadata["bounds"].check(name, value)


def check_choice(name: str, value: Any, kind: Any) -> None:
    """Refuse a value that a Literal does not list."""
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise ConfigError(f"{name} must be one of {', '.join(get_args(kind))}, got {value!r}")
