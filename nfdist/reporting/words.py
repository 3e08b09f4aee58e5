"""Numbers and sentences as a page shows them."""

import re
from html import escape
from typing import Any


def escaped(value: Any) -> str:
    """Any text as part of a page."""
    return escape(str(value))


def sentence(text: str) -> str:
    """A sentence as part of a page; what stands `between` is a command or a name of a file."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def number(value: float) -> str:
    """A number in few digits: 0.0123, 1.5, 12,300, 1.2M."""
    for limit, factor, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= limit:
            return f"{value / factor:.3g}{unit}"
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def score(value: float | None) -> str:
    """A fraction with four digits."""
    return "–" if value is None else f"{value:.4f}"


def percent(value: float | None) -> str:
    """A share; small ones keep two digits, down to a hundredth of a percent."""
    if value is None:
        return "–"
    if 0 < value < 1e-4:
        return "<0.01%"
    return f"{100 * value:.1f}%" if value >= 0.0995 or value == 0 else f"{100 * value:.2g}%"


def kind(name: str) -> str:
    """A class as one speaks of it, where it has no name but a number."""
    return f"class {name}" if name.isdigit() else name


def counted(count: int, noun: str, plural: str = "") -> str:
    """As in 1 seed, 3 seeds."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def amount(size_bytes: float) -> str:
    """Bytes in the unit that suits them."""
    for unit, factor in (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes:.0f} bytes"
