"""The square of counts, the calibration and the map show the numbers they were given."""

import pytest

from nfdist.reporting import pictures
from nfdist.reporting.charts import COLORS, OTHER
from nfdist.reporting.pictures import Dot
from tests.reporting.drawn import drawings


def test_every_count_is_told_and_colored_by_its_share_of_the_row() -> None:
    counts, names = [[8, 2], [0, 0]], ["<a>", "b"]
    for drawing in drawings(pictures.heat(counts, names, "confusion")):
        cells = [element for element in drawing if element.tag.endswith("rect")]
        tips = [cell.attrib["data-tip"] for cell in cells]
        assert tips[:2] == ["<a> answered as <a>\n8 of 10 (80.0%)", "<a> answered as b\n2 of 10 (20.0%)"]
        assert [float(cell.attrib["fill-opacity"]) for cell in cells] == pytest.approx([0.81, 0.24, 0.05, 0.05])
        assert [element.text for element in drawing if element.text in ("8", "2", "0")] == ["8", "2", "0", "0"]


def test_a_large_square_leaves_out_its_empty_cells() -> None:
    size = 60
    counts = [[int(row == column) for column in range(size)] for row in range(size)]
    (wide, narrow) = drawings(pictures.heat(counts, [str(name) for name in range(size)], "confusion"))
    for drawing in (wide, narrow):
        assert sum(element.tag.endswith("rect") for element in drawing) == size
        side = float(drawing.attrib["width"])
        assert all(float(one.attrib["x"]) + float(one.attrib["width"]) <= side for one in drawing if "rect" in one.tag)


def test_dots_of_the_map_have_their_color_and_links_their_strength() -> None:
    dots = [Dot(0, 0, 0, "<one>"), Dot(1, 1, -1, "two"), Dot(2, 0, 3, "three")]
    (drawing,) = drawings(pictures.scatter(dots, [(0, 2, 0.5), (1, 2, 0.25)], "map"))
    circles = [element for element in drawing if element.tag.endswith("circle")]
    assert [one.attrib["fill"] for one in circles] == [COLORS[0], OTHER, COLORS[3]]
    assert [one.attrib["data-tip"] for one in circles] == ["<one>", "two", "three"]
    lines = [element for element in drawing if element.tag.endswith("line")]
    strengths = [float(line.attrib["stroke-opacity"]) for line in lines]
    assert strengths[0] > strengths[1]
    assert lines[0].attrib["x1"] == circles[0].attrib["cx"]
    assert lines[0].attrib["x2"] == circles[2].attrib["cx"]


def test_a_calibrated_bin_lies_on_the_diagonal() -> None:
    (drawing, _) = drawings(pictures.calibration([(0.5, 0.5, 1.0, "tip")], "calibration"))
    (diagonal, _) = (element.attrib["points"] for element in drawing if element.tag.endswith("polyline"))
    (x1, y1), (x2, y2) = (map(float, pair.split(",")) for pair in diagonal.split())
    (circle,) = (element for element in drawing if element.tag.endswith("circle"))
    assert float(circle.attrib["cx"]) == pytest.approx((x1 + x2) / 2, abs=0.2)
    assert float(circle.attrib["cy"]) == pytest.approx((y1 + y2) / 2, abs=0.2)
