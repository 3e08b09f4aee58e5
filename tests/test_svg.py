"""Pictures are well-formed, and numbers lie where their scale puts them."""

from xml.etree import ElementTree

import pytest

from nfdist.svg import Drawing, Scale


def test_a_drawing_is_an_xml_document_whatever_its_texts_are() -> None:
    drawing = Drawing(100, 50)
    drawing.text(1, 2, 'a < b & "c"')
    drawing.line(0, 0, 1, 1)
    drawing.path([(0, 0), (1, 1)])
    drawing.dot(1, 1)
    drawing.bar(0, 0, 1, 1)
    root = ElementTree.fromstring(drawing.render())
    names = [element.tag.partition("}")[2] for element in root]
    assert names == ["rect", "text", "line", "polyline", "circle", "rect"]
    assert root[1].text == 'a < b & "c"'


@pytest.mark.parametrize("values", [[0.5], [0.0], [0.1, 0.2], [-3.0, 1e6], [0.8712, 0.8713]])
def test_a_scale_has_room_for_its_values_and_a_few_round_ticks(values: list[float]) -> None:
    scale = Scale.around(values, 10, 110)
    assert all(10 < scale.place(value) < 110 for value in values)
    assert 2 <= len(scale.ticks()) <= 6
    assert all(10 <= scale.place(tick) <= 110 for tick in scale.ticks())
    steps = {
        round((right - left) / (scale.high - scale.low), 6)
        for left, right in zip(scale.ticks(), scale.ticks()[1:], strict=False)
    }
    assert len(steps) == 1


def test_a_scale_may_point_up() -> None:
    scale = Scale(0.0, 1.0, 100.0, 0.0)
    assert [scale.place(value) for value in (0.0, 0.25, 1.0)] == [100.0, 75.0, 0.0]
