"""Exponents are slopes, the table says which are too large, and pictures and documents take what was measured."""

import math
from dataclasses import replace
from xml.etree import ElementTree

import billion
import growth
import growth_stages
import pytest
from growth_page import Curve, exponent, picture, placed, table

from nfdist import settings
from nfdist.plan.rates import ROUGH

SIZES = (100.0, 200.0, 400.0, 800.0, 1600.0)


def curve(power: float, axis: str = "nodes", **changes: object) -> Curve:
    seconds = tuple(3 * (size / 100) ** power for size in SIZES)
    flat = (2.0**20,) * len(SIZES)
    return replace(Curve(axis, "evaluation", SIZES, seconds, seconds, flat, seconds, flat), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("power", [0.0, 0.9, 1.0, 2.0])
def test_the_exponent_is_the_slope_of_the_logarithms(power: float) -> None:
    assert curve(power).exponent == pytest.approx(power)
    assert curve(power).bytes_exponent == pytest.approx(0)


def test_noise_moves_the_exponent_little_and_one_size_has_none() -> None:
    noisy = [value * factor for value, factor in zip(SIZES, (1.1, 0.9, 1.05, 0.95, 1.0), strict=True)]
    assert exponent(SIZES, noisy) == pytest.approx(1, abs=0.05)
    assert math.isnan(exponent([5], [1]))
    assert math.isnan(exponent([5, 10], [0, 1]))


def test_the_table_tells_what_grows_too_fast_along_nodes_and_edges_alone() -> None:
    (good, bad, free, known) = table([curve(1.05), curve(1.2), curve(2, "channels"), curve(2, note="paths")])[2:]
    assert "**above 1.10**" in bad
    assert "**" not in good + free + known
    assert (
        good
        == "| nodes | evaluation | 100 - 1,600 | 3.00 - 55.14 | 1.05 | 1.05 | 1.00 to 1.00 | 1 - 1 | 1.00 to 1.00 |"
    )


def test_a_picture_has_a_panel_an_axis_and_a_line_a_curve() -> None:
    drawn = picture([curve(1), curve(1.2, stage="hops"), curve(1, "edges")])
    root = ElementTree.fromstring(drawn)
    texts = [element.text for element in root if element.tag.endswith("text")]
    assert {"nodes", "edges", "evaluation", "hops"} <= set(texts)
    lines = [element for element in root if element.tag.endswith("polyline")]
    assert len([line for line in lines if "stroke-dasharray" not in line.attrib]) == 3
    for line in lines:
        places = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        assert all(0 <= x <= float(root.attrib["width"]) and 0 <= y <= float(root.attrib["height"]) for x, y in places)


def test_a_document_keeps_all_but_what_is_between_its_markers() -> None:
    page = "before\n<!-- growth -->\nold\n<!-- end of growth -->\nafter\n"
    assert placed(page, "growth", ["new"]) == "before\n<!-- growth -->\nnew\n<!-- end of growth -->\nafter\n"
    with pytest.raises(ValueError, match="no place for billion"):
        placed(page, "billion", [])
    text = growth.PAGE.read_text()
    assert placed(placed(text, "growth", []), "billion", [])


def test_every_axis_doubles_and_every_stage_is_known() -> None:
    for axis, point in growth.axes(1000, 5).items():
        sizes = [point(step)[0] for step in range(5)]
        assert sizes == [sizes[0] * 2**step for step in range(5)]
        assert set(growth.STAGES_OF[axis]) <= set(growth_stages.STAGES)
        for step in (0, 4):
            settings.parse(growth_stages.SETTINGS, ["data.partition=none", *point(step)[1].overrides])


def test_what_a_billion_nodes_send_for_attention_does_not_depend_on_the_hosts() -> None:
    lines = billion.billion_lines(ROUGH, 1.25e9, 1e9)
    rows = [line.split(" | ") for line in lines if line.startswith("| ") and line[2].isdigit()]
    assert [int(row[0].strip("| ")) for row in rows] == list(billion.HOSTS)
    assert len({row[3] for row in rows}) == 1
    disk = [float(row[1].split()[0]) for row in rows]
    assert disk == sorted(disk, reverse=True)
    assert disk[0] == pytest.approx(billion.part_bytes(billion.graph(8), 8) / 2**30, abs=0.5)


def test_the_parts_of_a_billion_nodes_are_all_of_them() -> None:
    counts = billion.graph(64)
    assert sum(part.num_nodes for part in counts.parts) == billion.NODES
    assert all(left.stop == right.start for left, right in zip(counts.parts, counts.parts[1:], strict=False))
