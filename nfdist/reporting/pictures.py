"""Pictures of a page that are not lines or bars: a square of counts, calibration, and a map of nodes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nfdist.reporting.charts import CARD, COLORS, INK, LINES, MUTED, OTHER, cut, responsive
from nfdist.reporting.words import escaped
from nfdist.svg import Drawing, Scale


def heat(counts: Sequence[Sequence[int]], names: Sequence[str], label: str) -> str:
    """A square of counts, rows of truth and columns of answers, colored by the share of the row."""
    return responsive(lambda width: _heat(counts, names, label, width))


def _heat(counts: Sequence[Sequence[int]], names: Sequence[str], label: str, width: float) -> str:
    size = len(names)
    longest = max(map(len, names), default=1)
    left = min(30 + 7.0 * min(longest, 12), 0.3 * width)
    cell = (width - left - 6) / size
    if size <= 6:
        cell = min(cell, 80.0)
    top = 6.0
    side = cell * size
    drawing = Drawing(width, top + side + 46)
    fits = cell >= 30 and all(count < 100_000 for row in counts for count in row)
    every = max(1, math.ceil(13 / cell))
    room = max(int((cell * every - 6) / 6.9), 1)
    for place, (row, name) in enumerate(zip(counts, names, strict=True)):
        y, total = top + cell * place, sum(row) or 1
        if place % every == 0:
            drawing.text(left - 6, y + cell / 2 + 4, cut(name, int((left - 26) / 6.9)), "end", MUTED, 11)
            drawing.text(left + cell * (place + 0.5), top + side + 15, cut(name, room), "middle", MUTED, 11)
        for column, count in enumerate(row):
            share = count / total
            tip = f"{name} answered as {names[column]}\n{count:,} of {total:,} ({share:.1%})"
            if count or size <= 30:
                place_of = (left + cell * column, y, cell - min(1.0, cell * 0.1), cell - min(1.0, cell * 0.1))
                drawing.bar(*place_of, COLORS[0], fill_opacity=f"{0.05 + 0.95 * share:.2f}", data_tip=tip)
            if fits:
                color = CARD if share > 0.5 else INK
                at = left + cell * (column + 0.5), y + cell / 2 + 4
                drawing.text(*at, f"{count}", "middle", color, 11, pointer_events="none")
    drawing.text(left + side / 2, top + side + 36, "answer", "middle", MUTED, 11)
    drawing.element(
        "text",
        "truth",
        x=12.0,
        y=top + side / 2,
        fill=MUTED,
        font_size="11",
        text_anchor="middle",
        transform=f"rotate(-90 12 {top + side / 2:.1f})",
    )
    return drawing.inline(label, data_plot="heat")


def calibration(points: Sequence[tuple[float, float, float, str]], label: str) -> str:
    """Dots of probability, share of right answers and weight 0..1, each with a tip, beside the diagonal."""
    return responsive(lambda width: _calibration(points, label, width))


def _calibration(points: Sequence[tuple[float, float, float, str]], label: str, width: float) -> str:
    drawing, sideways, up = _shares(width, "probability of the answer")
    drawing.path([(sideways.place(x), up.place(y)) for x, y, _, _ in points], COLORS[0], 2)
    for x, y, weight, tip in points:
        drawing.dot(sideways.place(x), up.place(y), COLORS[0], radius=3 + 6 * math.sqrt(weight), data_tip=tip)
    return drawing.inline(label, data_plot="calibration")


def roc(points: Sequence[tuple[float, float]], others: str, label: str) -> str:
    """A curve from (0, 0) to (1, 1) beside the diagonal, which is chance; below it stands `others`."""
    return responsive(lambda width: _roc(points, others, label, width))


def _roc(points: Sequence[tuple[float, float]], others: str, label: str, width: float) -> str:
    drawing, sideways, up = _shares(width, others)
    drawing.path([(sideways.place(x), up.place(y)) for x, y in points], COLORS[0], 2)
    for x, y in points:
        tip = f"{y:.1%} found\n{x:.1%} {others}"
        drawing.dot(sideways.place(x), up.place(y), COLORS[0], radius=5, fill_opacity="0", stroke="none", data_tip=tip)
    return drawing.inline(label, data_plot="roc")


def _shares(width: float, across: str) -> tuple[Drawing, Scale, Scale]:
    """A drawing with two axes from 0 to 1 and their diagonal."""
    height, left, bottom = 250.0, 44.0, 210.0
    drawing = Drawing(width, height)
    sideways, up = Scale(0.0, 1.0, left, width - 14), Scale(0.0, 1.0, bottom, 12.0)
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        drawing.line(left, up.place(tick), width - 14, up.place(tick), LINES)
        drawing.text(left - 6, up.place(tick) + 4, f"{tick:g}", "end", MUTED, 11)
        drawing.text(sideways.place(tick), bottom + 17, f"{tick:g}", "middle", MUTED, 11)
    drawing.path([(left, bottom), (sideways.place(1.0), up.place(1.0))], MUTED, 1, True)
    drawing.text((left + width) / 2, height - 4, across, "middle", MUTED, 11)
    return drawing, sideways, up


@dataclass(frozen=True)
class Dot:
    """A node on a map: its place, the number of its color, and a tip."""

    x: float
    y: float
    color: int
    tip: str


def scatter(dots: Sequence[Dot], links: Sequence[tuple[int, int, float]], label: str) -> str:
    """Nodes on a map and the lines between them, thicker where the weight is larger; one drawing fits everywhere."""
    size = 540.0
    drawing = Drawing(size, 0.82 * size)
    xs, ys = [dot.x for dot in dots], [dot.y for dot in dots]
    sideways, up = Scale.around(xs, 8, size - 8), Scale.around(ys, drawing.height - 8, 8)
    placed = [(sideways.place(dot.x), up.place(dot.y)) for dot in dots]
    most = max((weight for *_, weight in links), default=1.0)
    for one, other, weight in links:
        (x1, y1), (x2, y2) = placed[one], placed[other]
        strength = 0.15 + 0.55 * weight / most
        drawing.element(
            "line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=MUTED, stroke_width="1", stroke_opacity=f"{strength:.2f}"
        )
    for dot, (x, y) in zip(dots, placed, strict=True):
        color = OTHER if dot.color < 0 else COLORS[dot.color]
        drawing.dot(
            x, y, color, radius=4.2, data_tip=dot.tip, data_group=str(dot.color), fill_opacity="0.85", stroke=CARD
        )
    return drawing.inline(label, data_plot="map")


def groups(entries: Sequence[tuple[str, str, int]]) -> str:
    """A legend whose entries single out the dots of their number when they are pressed."""
    items = "".join(
        f'<li><button type="button" data-show="{group}" aria-pressed="false"><span class="key round" '
        f'style="--key:{color}"></span>{escaped(name)}</button></li>'
        for name, color, group in entries
    )
    return f'<ul class="legend">{items}</ul>'
