"""Curves of growth: fitted exponents, a table, a picture, and their places in a document."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nfdist.svg import ACCENT, GRID, INK, PALE, Drawing

MOST_EXPONENT = 1.10  # wanted of nodes and edges
WANTED_AXES = ("nodes", "edges")
COLORS = (ACCENT, "#c2571a", "#3d8a4d", "#8a4d9e", "#a88b12", "#5f6b76", "#b3405f")
PANEL_WIDTH, PANEL_HEIGHT, MARGIN, LEGEND = 230.0, 170.0, 46.0, 24.0


@dataclass(frozen=True)
class Curve:
    """What a stage took along an axis: CPU and wall seconds and private bytes, as measured and as a plan has them."""

    axis: str
    stage: str
    sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...]
    private_bytes: tuple[float, ...]
    planned_seconds: tuple[float, ...]
    planned_bytes: tuple[float, ...]
    note: str = ""

    @property
    def exponent(self) -> float:
        """Of CPU seconds, which other processes change little."""
        return exponent(self.sizes, self.cpu_seconds)

    @property
    def bytes_exponent(self) -> float:
        return exponent(self.sizes, self.private_bytes)

    @property
    def is_kept(self) -> bool:
        return self.axis not in WANTED_AXES or bool(self.note) or self.exponent <= MOST_EXPONENT


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the least-squares line through the logarithms; not a number where there are not two sizes."""
    if len(set(sizes)) < 2 or any(value <= 0 for value in values):
        return math.nan
    across, up = [math.log(size) for size in sizes], [math.log(value) for value in values]
    middle, level = sum(across) / len(across), sum(up) / len(up)
    spread = sum((one - middle) ** 2 for one in across)
    return sum((one - middle) * (other - level) for one, other in zip(across, up, strict=True)) / spread


def table(curves: Sequence[Curve]) -> list[str]:
    """One line a curve: its ends, its exponents, and how far the plan is from what was measured."""
    lines = [
        "| along | stage | from - to | CPU seconds | exponent | of the last doubling | seconds planned / measured "
        "| private MiB | planned / measured |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for curve in curves:
        wanted = "" if curve.is_kept else f" **above {MOST_EXPONENT:.2f}**"
        cells = [
            curve.axis,
            curve.stage + (f" ({curve.note})" if curve.note else ""),
            f"{_count(curve.sizes[0])} - {_count(curve.sizes[-1])}",
            f"{curve.cpu_seconds[0]:.2f} - {curve.cpu_seconds[-1]:.2f}",
            f"{curve.exponent:.2f}{wanted}",
            f"{exponent(curve.sizes[-2:], curve.cpu_seconds[-2:]):.2f}",
            _ratios(curve.planned_seconds, curve.cpu_seconds),
            f"{curve.private_bytes[0] / 2**20:.0f} - {curve.private_bytes[-1] / 2**20:.0f}",
            _ratios(curve.planned_bytes, curve.private_bytes),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _ratios(planned: Sequence[float], measured: Sequence[float]) -> str:
    pairs = zip(planned, measured, strict=True)
    ratios = [one / other for one, other in pairs if one and other]
    return f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""


def _count(size: float) -> str:
    return f"{size:,.0f}"


def picture(curves: Sequence[Curve]) -> str:
    """A panel an axis, both scales logarithmic; grey lines grow with the size itself."""
    axes = list(dict.fromkeys(curve.axis for curve in curves))
    stages = list(dict.fromkeys(curve.stage for curve in curves))
    colors = {stage: COLORS[number % len(COLORS)] for number, stage in enumerate(stages)}
    columns = min(3, len(axes))
    rows = -(-len(axes) // columns)
    legend = LEGEND * (-(-len(stages) // 3) + 1)
    drawing = Drawing(columns * (PANEL_WIDTH + MARGIN) + MARGIN, rows * (PANEL_HEIGHT + 2 * MARGIN) + legend)
    for number, axis in enumerate(axes):
        left = MARGIN + (number % columns) * (PANEL_WIDTH + MARGIN)
        top = MARGIN + (number // columns) * (PANEL_HEIGHT + 2 * MARGIN)
        _panel(drawing, [curve for curve in curves if curve.axis == axis], colors, left, top)
    for number, stage in enumerate(stages):
        x = MARGIN + (number % 3) * (drawing.width - MARGIN) / 3
        y = drawing.height - legend + LEGEND * (number // 3 + 0.5)
        drawing.line(x, y - 4, x + 18, y - 4, colors[stage], 2)
        drawing.text(x + 24, y, stage)
    return drawing.render()


def _panel(drawing: Drawing, curves: Sequence[Curve], colors: Mapping[str, str], left: float, top: float) -> None:
    sizes = [size for curve in curves for size in curve.sizes]
    seconds = [value for curve in curves for value in curve.cpu_seconds]
    low, high = _decades(seconds)
    first, last = math.log10(min(sizes)), math.log10(max(sizes))

    def place(size: float, value: float) -> tuple[float, float]:
        across = (math.log10(size) - first) / ((last - first) or 1)
        up = (math.log10(value) - low) / (high - low)
        return left + across * PANEL_WIDTH, top + (1 - up) * PANEL_HEIGHT

    for power in range(low, high + 1):
        y = place(min(sizes), 10.0**power)[1]
        drawing.line(left, y, left + PANEL_WIDTH, y, GRID)
        drawing.text(left - 5, y + 4, f"{10.0**power:g}", "end", size=10)
    for curve in curves:
        start, end = curve.sizes[0], curve.sizes[-1]
        linear = [place(start, curve.cpu_seconds[0]), place(end, min(curve.cpu_seconds[0] * end / start, 10.0**high))]
        if curve.cpu_seconds[0] * end / start <= 10.0**high:
            drawing.path(linear, PALE, 1, dashed=True)
        drawing.path([place(*point) for point in zip(curve.sizes, curve.cpu_seconds, strict=True)], colors[curve.stage])
        for point in zip(curve.sizes, curve.cpu_seconds, strict=True):
            drawing.dot(*place(*point), colors[curve.stage], radius=2.5)
    bottom = top + PANEL_HEIGHT
    drawing.line(left, bottom, left + PANEL_WIDTH, bottom, INK)
    drawing.text(left, bottom + 15, _count(min(sizes)), size=10)
    drawing.text(left + PANEL_WIDTH, bottom + 15, _count(max(sizes)), "end", size=10)
    drawing.text(left + PANEL_WIDTH / 2, bottom + 30, curves[0].axis, "middle")
    drawing.text(left, top - 10, "CPU seconds", size=10)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def placed(text: str, name: str, lines: Sequence[str]) -> str:
    """A document with other lines between its markers of a name."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if begin not in text or end not in text:
        raise ValueError(f"the document has no place for {name}: give it the lines {begin} and {end}")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n" + "\n".join(lines) + f"\n{end}{after}"
