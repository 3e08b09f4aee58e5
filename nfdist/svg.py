"""Small pictures as SVG text, which any browser shows: dots, bars and lines over a scale."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

INK, PALE, GRID, ACCENT = "#222222", "#9aa4af", "#e3e6ea", "#2563a8"


@dataclass
class Drawing:
    """A picture that grows; y points down, as in SVG."""

    width: float
    height: float
    parts: list[str] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, color: str = GRID, width: float = 1.0) -> None:
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        self.parts.append(f'<line {ends} stroke="{color}" stroke-width="{width:g}"/>')

    def path(self, points: Sequence[tuple[float, float]], color: str = ACCENT) -> None:
        through = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{through}" fill="none" stroke="{color}" stroke-width="2"/>')

    def dot(self, x: float, y: float, color: str = ACCENT, filled: bool = True) -> None:
        fill = color if filled else "white"
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{color}"/>')

    def bar(self, x: float, y: float, width: float, height: float, color: str = ACCENT) -> None:
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}"/>')

    def text(self, x: float, y: float, text: str, anchor: str = "start", color: str = INK, size: int = 12) -> None:
        place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" font-size="{size}"'
        self.parts.append(f"<text {place}>{escape(text)}</text>")

    def render(self) -> str:
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
        return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *self.parts, "</svg>\n"])


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

    def ticks(self) -> list[float]:
        """A few round numbers: steps of 1, 2 or 5 times a power of ten."""
        rough = (self.high - self.low) / 4
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [number * step for number in range(first, last + 1)]
