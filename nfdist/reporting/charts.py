"""The charts of a page: each is drawn for a wide and for a narrow place, and the page shows the one that fits."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nfdist.reporting.words import escaped, number
from nfdist.svg import Drawing, Scale

WIDE, NARROW = 540.0, 318.0
INK, MUTED, LINES, CARD = "var(--ink)", "var(--muted)", "var(--line)", "var(--card)"
COLORS = tuple(f"var(--c{place})" for place in range(8))
OTHER = "var(--other)"
MOST_POINTS = 200  # of a line: more are means of neighbors


@dataclass(frozen=True)
class Series:
    """A line by its points; `marks` shows each as a dot, and without a line with `alone`.

    Lines of one name share a color and a place in the legend; `whose` tells them apart beside the pointer.
    """

    name: str
    points: Sequence[tuple[float, float]]
    color: str
    marks: bool = False
    alone: bool = False
    whose: str = ""


@dataclass(frozen=True)
class Span:
    """A row of `spans`: what lies between low and high, with its middle."""

    name: str
    low: float
    middle: float
    high: float
    tip: str


def responsive(draw: Callable[[float], str]) -> str:
    """Both drawings of a chart."""
    return f'<div class="wide">{draw(WIDE)}</div><div class="narrow">{draw(NARROW)}</div>'


def legend(entries: Sequence[tuple[str, str, bool]]) -> str:
    """Names with their colors; the third says whether dots stand for it instead of a line."""
    items = "".join(
        f'<li><span class="key{" round" if dots else ""}" style="--key:{color}"></span>{escaped(name)}</li>'
        for name, color, dots in entries
    )
    return f'<ul class="legend">{items}</ul>'


def lines(
    series: Sequence[Series], across: str, label: str, form: Callable[[float], str] = number, zero: bool = False
) -> str:
    """Lines over a common axis. Tips tell the values of all lines where the pointer is."""
    thinned = [Series(**{**vars(one), "points": thin(one.points)}) for one in series if one.points]
    named = {one.name: (one.name, one.color, one.alone) for one in thinned}
    shown = legend(list(named.values())) if len(named) > 1 else ""
    return shown + responsive(lambda width: _lines(thinned, across, label, form, width, zero))


def thin(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """No more than MOST_POINTS of the points: of longer lines, the means of equal runs."""
    size = -(-len(points) // MOST_POINTS)
    if size <= 1:
        return list(points)
    runs = [points[start : start + size] for start in range(0, len(points), size)]
    return [(run[-1][0], sum(value for _, value in run) / len(run)) for run in runs]


def _lines(
    series: Sequence[Series], across: str, label: str, form: Callable[[float], str], width: float, zero: bool
) -> str:
    height, left, right, top, bottom = 230.0, 52.0, width - 12, 12.0, 192.0
    drawing = Drawing(width, height)
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points]
    high = max(xs) if max(xs) > min(xs) else min(xs) + 1
    sideways = Scale(min(xs), high, left + 6, right - 6)
    up = Scale(0.0, max(ys) * 1.08 or 1.0, bottom, top) if zero else Scale.around(ys, bottom, top)
    for tick in up.ticks():
        drawing.line(left, up.place(tick), right, up.place(tick), LINES)
        drawing.text(left - 6, up.place(tick) + 4, form(tick), "end", MUTED, 11)
    whole = [tick for tick in sideways.ticks(6 if width > 400 else 4) if tick == int(tick)]
    for tick in whole:
        drawing.text(sideways.place(tick), bottom + 18, number(tick), "middle", MUTED, 11)
    drawing.text((left + right) / 2, height - 4, across, "middle", MUTED, 11)
    for one in series:
        placed = [(sideways.place(x), up.place(y)) for x, y in one.points]
        if len(placed) > 1 and not one.alone:
            drawing.path(placed, one.color)
        if one.marks or len(placed) == 1:
            for x, y in placed:
                drawing.dot(x, y, one.color, radius=4.5 if one.alone else 3)
    hover = json.dumps(_tips(series, across, form, sideways))
    drawing.element("line", x1=0.0, x2=0.0, y1=top, y2=bottom, _class="cursor")
    return drawing.inline(label, data_hover=hover, data_plot="lines")


def _tips(
    series: Sequence[Series], across: str, form: Callable[[float], str], sideways: Scale
) -> list[tuple[float, str]]:
    """The text at every place where a line has a point."""
    rows: dict[float, list[str]] = {}
    for one in series:
        for x, y in one.points:
            rows.setdefault(x, []).append(f"{one.name}{one.whose}: {form(y)}")
    return [(round(sideways.place(x), 1), "\n".join([f"{across} {number(x)}", *rows[x]])) for x in sorted(rows)]


def bars(rows: Sequence[tuple[str, float, str, str]], label: str) -> str:
    """Horizontal bars from zero: a name, a length, the text behind it and a color."""
    return responsive(lambda width: _bars(rows, label, width))


def _bars(rows: Sequence[tuple[str, float, str, str]], label: str, width: float) -> str:
    drawing = Drawing(width, 30.0 * len(rows) + 8)
    most = max((value for _, value, _, _ in rows), default=0.0) or 1.0
    text_width = max((7.0 * len(text) for _, _, text, _ in rows), default=0.0)
    left = min(0.42 * width, 16 + 6.6 * max((len(name) for name, *_ in rows), default=0))
    room = width - left - text_width - 14
    for place, (name, value, text, color) in enumerate(rows):
        y = 6 + 30.0 * place
        drawing.text(left - 8, y + 15, cut(name, int(left / 6.4)), "end", INK, 12)
        drawing.bar(left, y, max(room * value / most, 1.5), 20, color, rx="3", data_tip=f"{name}: {text}")
        drawing.text(left + max(room * value / most, 1.5) + 6, y + 15, text, "start", MUTED, 12)
    return drawing.inline(label, data_plot="bars")


def grouped(names: Sequence[str], groups: Sequence[tuple[str, str, Sequence[float]]], label: str) -> str:
    """Columns side by side: of every name one of each group, as a share of the group's largest."""
    shown = legend([(name, color, False) for name, color, _ in groups])
    return shown + responsive(lambda width: _grouped(names, groups, label, width))


def _grouped(names: Sequence[str], groups: Sequence[tuple[str, str, Sequence[float]]], label: str, width: float) -> str:
    height, left, bottom = 200.0, 8.0, 164.0
    drawing = Drawing(width, height)
    slot = (width - 2 * left) / len(names)
    thick = max(min(slot * 0.8 / len(groups), 26.0), 0.6)
    every = -(-len(names) * 30 // int(width))
    drawing.line(left, bottom, width - left, bottom, LINES)
    for place, name in enumerate(names):
        middle = left + slot * (place + 0.5)
        for turn, (group, color, values) in enumerate(groups):
            tall = (bottom - 14) * values[place] / (max(values) or 1.0)
            x = middle + (turn - len(groups) / 2) * thick
            tip = f"part {name}\n{group}: {values[place]:,.0f}"
            drawing.bar(x + 0.5, bottom - tall, max(thick - 1, 0.5), tall, color, data_tip=tip)
        if place % every == 0:
            drawing.text(middle, bottom + 17, name, "middle", MUTED, 11)
    drawing.text(width / 2, height - 4, "part", "middle", MUTED, 11)
    return drawing.inline(label, data_plot="columns")


def spans(rows: Sequence[Span], most: float, across: str, label: str) -> str:
    """Ranges with their middle on a logarithmic axis from 1 to `most`, where a line stands."""
    return responsive(lambda width: _spans(rows, most, across, label, width))


def _spans(rows: Sequence[Span], most: float, across: str, label: str, width: float) -> str:
    height, left = 40.0 * len(rows) + 52, 74.0
    drawing = Drawing(width, height)
    scale, bottom = Scale(0.0, math.log10(max(most, 2.0)), left, width - 16), height - 40
    for power in range(int(scale.high) + 1):
        x = scale.place(power)
        drawing.line(x, 4, x, bottom, LINES)
        if scale.place(scale.high) - x > 46:
            drawing.text(x, bottom + 16, number(10.0**power), "middle", MUTED, 11)
    drawing.line(scale.end, 4, scale.end, bottom, MUTED, 1.5)
    drawing.text(scale.end + 6, bottom + 16, number(most), "end", MUTED, 11)
    drawing.text((left + width) / 2, height - 4, across, "middle", MUTED, 11)
    for place, row in enumerate(rows):
        y = 22 + 40.0 * place
        low, middle, high = (scale.place(math.log10(max(one, 1.0))) for one in (row.low, row.middle, row.high))
        drawing.text(left - 10, y + 4, row.name, "end", INK, 12)
        drawing.bar(low, y - 6, max(high - low, 2.0), 12, COLORS[0], fill_opacity="0.28", rx="6", data_tip=row.tip)
        drawing.dot(middle, y, COLORS[0], radius=5.5, data_tip=row.tip)
    return drawing.inline(label, data_plot="spans")


def beside_chance(rows: Sequence[tuple[str, str, float, str]], label: str) -> str:
    """How many times chance something is: a name, a color, the ratio and a tip; a line stands at 1."""
    return responsive(lambda width: _beside_chance(rows, label, width))


def _beside_chance(rows: Sequence[tuple[str, str, float, str]], label: str, width: float) -> str:
    height, left = 24.0 * len(rows) + 52, 74.0
    drawing = Drawing(width, height)
    bottom = height - 40
    scale = Scale(0.0, max(2.0, *(1.1 * ratio for _, _, ratio, _ in rows)), left, width - 20)
    for tick in scale.ticks(4 if width > 400 else 3):
        drawing.line(scale.place(tick), 4, scale.place(tick), bottom, LINES)
        drawing.text(scale.place(tick), bottom + 16, f"{tick:g}×", "middle", MUTED, 11)
    drawing.line(scale.place(1), 4, scale.place(1), bottom, MUTED, 1.5)
    drawing.text((left + width) / 2, height - 4, "times what chance gives", "middle", MUTED, 11)
    before = ""
    for place, (name, color, ratio, tip) in enumerate(rows):
        y = 17 + 24.0 * place
        if name != before:
            drawing.text(left - 10, y + 4, name, "end", INK, 12)
        before = name
        drawing.line(scale.place(1), y, scale.place(ratio), y, color, 2)
        drawing.dot(scale.place(ratio), y, color, radius=5.5, data_tip=tip)
    return drawing.inline(label, data_plot="chance")


def cut(text: str, room: int) -> str:
    """A text that fits so many letters."""
    return text if len(text) <= room else f"{text[: max(room - 1, 1)]}…"
