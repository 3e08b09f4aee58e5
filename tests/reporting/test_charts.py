"""Charts are well-formed for wide and narrow places, and what they tell beside the pointer are the numbers."""

import html
import json

import pytest

from nfdist.reporting import charts
from nfdist.reporting.charts import MOST_POINTS, Series, Span
from tests.reporting.drawn import drawings

WORST = '<script>"&'


def test_tips_of_lines_tell_every_value_at_a_place() -> None:
    series = [Series(WORST, [(1, 0.5), (2, 0.25)], "red"), Series("two", [(2, 4.0)], "blue", marks=True)]
    for drawing in drawings(charts.lines(series, "epoch", WORST)):
        tips = json.loads(drawing.attrib["data-hover"])
        assert [text for _, text in tips] == [f"epoch 1\n{WORST}: 0.5", f"epoch 2\n{WORST}: 0.25\ntwo: 4"]
        assert tips[0][0] < tips[1][0] < float(drawing.attrib["width"])
        assert drawing.attrib["aria-label"] == WORST
    assert html.escape(WORST) in charts.lines(series, "epoch", "x")
    assert "<script" not in charts.lines(series, "epoch", WORST)


def test_long_lines_become_means_of_equal_runs() -> None:
    points = [(float(step), float(step % 2)) for step in range(10 * MOST_POINTS)]
    thinned = charts.thin(points)
    assert len(thinned) == MOST_POINTS
    assert {value for _, value in thinned} == {0.5}
    assert thinned[-1][0] == points[-1][0]
    assert charts.thin(points[:5]) == points[:5]


@pytest.mark.parametrize(
    "chart",
    [
        charts.lines([Series("one", [(3, 0.0)], "red")], "step", "x", zero=True),
        charts.lines([Series("flat", [(1, 2.0), (9, 2.0)], "red")], "step", "x"),
        charts.bars([(WORST * 9, 0.0, "0 s", "red"), ("b", 2.0, "2 s", "red")], "x"),
        charts.bars([("only", 0.0, "0 s", "red")], "x"),
        charts.grouped([str(part) for part in range(256)], [("nodes", "red", [0.0] * 256)], "x"),
        charts.spans([Span("layer 1", 0.9, 1.0, 1.0, "tip")], 1.0, "nodes", "x"),
        charts.beside_chance([("layer 1", "red", 250.0, "tip")], "x"),
    ],
)
def test_whatever_the_numbers_are_everything_is_inside(chart: str) -> None:
    found = drawings(chart)
    assert [float(drawing.attrib["width"]) for drawing in found] == [charts.WIDE, charts.NARROW]
    for drawing in found:
        width = float(drawing.attrib["width"])
        for element in drawing:
            for name in ("x", "cx", "x1", "x2"):
                assert -1 <= float(element.attrib.get(name, 0)) <= width + 1, element.attrib


def test_a_bar_is_as_long_as_its_number() -> None:
    (wide, _) = drawings(charts.bars([("a", 1.0, "1", "red"), ("b", 4.0, "4", "red")], "x"))
    lengths = [float(element.attrib["width"]) for element in wide if element.tag.endswith("rect")]
    assert lengths[1] == pytest.approx(4 * lengths[0], abs=0.3)
