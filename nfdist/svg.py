"""Small pictures as SVG text, which any browser shows: dots, bars and lines over a scale."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

INK, PALE, GRID, ACCENT = "#222222", "#9aa4af", "#e3e6ea", "#2563a8"


@dataclass
class Drawing:
    """A picture that grows; y points down, as in SVG. A `tip` is what a page's script shows beside the pointer."""

    width: float
    height: float
    parts: list[str] = field(default_factory=list)

    def element(self, name: str, text: str | None = None, /, **attributes: str | float) -> None:
        """Any element; `stroke_width=2` becomes stroke-width="2", and numbers have one decimal."""
        shown = "".join(f' {key.strip("_").replace("_", "-")}="{_written(one)}"' for key, one in attributes.items())
        self.parts.append(f"<{name}{shown}/>" if text is None else f"<{name}{shown}>{escape(text)}</{name}>")

    def line(self, x1: float, y1: float, x2: float, y2: float, color: str = GRID, width: float = 1.0) -> None:
        self.element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=color, stroke_width=f"{width:g}")

    def path(
        self, points: Sequence[tuple[float, float]], color: str = ACCENT, width: float = 2.0, dashed: bool = False
    ) -> None:
        through = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = {"stroke_dasharray": "5 4"} if dashed else {}
        self.element("polyline", points=through, fill="none", stroke=color, stroke_width=f"{width:g}", **dashes)

    def dot(
        self, x: float, y: float, color: str = ACCENT, filled: bool = True, radius: float = 4.0, **attributes: str
    ) -> None:
        fill = {"fill": color} if filled else {"fill": "white"}
        self.element("circle", cx=x, cy=y, r=f"{radius:g}", **{**fill, "stroke": color, **attributes})

    def bar(
        self, x: float, y: float, width: float, height: float, color: str = ACCENT, **attributes: str | float
    ) -> None:
        self.element("rect", x=x, y=y, width=width, height=height, fill=color, **attributes)

    def text(
        self, x: float, y: float, text: str, anchor: str = "start", color: str = INK, size: int = 12, **more: str
    ) -> None:
        self.element("text", text, x=x, y=y, text_anchor=anchor, fill=color, font_size=f"{size}", **more)

    def render(self) -> str:
        """A file of its own, on white."""
        background = '<rect width="100%" height="100%" fill="white"/>'
        return "\n".join([self._head("", ' font-family="sans-serif"'), background, *self.parts, "</svg>\n"])

    def inline(self, label: str, **attributes: str) -> str:
        """A part of a page, whose font and background it has; `label` is for those who do not see it."""
        more = "".join(f' {key.replace("_", "-")}="{escape(one)}"' for key, one in attributes.items())
        return "\n".join([self._head(f' role="img" aria-label="{escape(label)}"', more), *self.parts, "</svg>"])

    def _head(self, label: str, more: str) -> str:
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size}{label}{more}>'


@dataclass(frozen=True)
class Scale:
    """Numbers from `low` to `high` at places from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    @staticmethod
    def around(values: Sequence[float], start: float, end: float) -> "Scale":
        """One that has room for all values, and some beside them."""
        low, high = min(values), max(values)
        margin = 0.06 * (high - low) or 0.05 * abs(high) or 0.05
        return Scale(low - margin, high + margin, start, end)

    def place(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, about: int = 4) -> list[float]:
        """A few round numbers: steps of 1, 2 or 5 times a power of ten."""
        rough = (self.high - self.low) / about
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [number * step for number in range(first, last + 1)]


def _written(value: str | float) -> str:
    return escape(value).replace("\n", "&#10;") if isinstance(value, str) else f"{value:.1f}"
