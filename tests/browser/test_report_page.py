"""The pages of nfdist report in a real browser: everything is drawn and legible, and nothing is asked of a network."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nfdist import api
from tests.browser.chromium import Browser
from tests.reporting.building import build_graph, train_run

pytestmark = pytest.mark.browser
WINDOWS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
PLOTS = {"lines", "bars", "columns", "heat", "calibration", "map", "spans", "chance"}
SHOWN = """
return [...document.querySelectorAll("svg[data-plot]")].filter(plot => plot.checkVisibility()).map(plot => {
  const box = plot.getBoundingClientRect();
  const marks = [...plot.querySelectorAll("polyline, rect, circle")].map(mark => mark.getBoundingClientRect());
  const texts = [...plot.querySelectorAll("text")].map(text => text.getBoundingClientRect());
  const size = text => Math.min(text.width, text.height);
  const beside = (one, two) => one.right <= two.left || two.right <= one.left;
  const clear = (one, two) => beside(one, two) || one.bottom <= two.top || two.bottom <= one.top;
  return {
    kind: plot.dataset.plot, width: box.width, height: box.height, left: box.left, right: box.right,
    marks: marks.filter(mark => mark.width + mark.height > 0).length,
    smallest: Math.min(...texts.map(size), 99),
    outside: texts.filter(text => text.left < box.left - 2 || text.right > box.right + 2).length,
    overlaps: texts.filter((one, place) => texts.slice(place + 1).some(two => !clear(one, two))).length,
  };
});
"""
CONTRAST = """
const parts = color => color.match(/[\\d.]+/g).map(Number);
const linear = one => one <= .03928 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4;
const light = color => {
  const [r, g, b] = parts(color).map(one => linear(one / 255));
  return .2126 * r + .7152 * g + .0722 * b;
};
const behind = light(getComputedStyle(document.querySelector(".card")).backgroundColor);
const ratio = one => (Math.max(one, behind) + .05) / (Math.min(one, behind) + .05);
const probe = document.body.appendChild(document.createElement("i"));
return ["ink", "muted", "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"].map(name => {
  probe.style.color = `var(--${name})`;
  return [name, ratio(light(getComputedStyle(probe).color))];
});
"""


@dataclass(frozen=True)
class Pages:
    """Reports of a run, of one that has hardly anything, of several, and of a large class of names."""

    whole: Path
    poor: Path
    several: Path


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    folder = tmp_path_factory.mktemp("pages")
    graph = build_graph(folder).directory
    run = train_run(folder / "run", graph)
    plain: dict[str, Any] = {
        "model": {"name": "mlp"},
        "relation": {"order": 0},
        "train": {"edge_loss": 0.0, "seeds": [0]},
    }
    poor = train_run(folder / "poor", graph, False, **plain)
    (poor / "result.json").unlink()
    third = Path(shutil.copytree(run, folder / "third"))
    several = api.report(run, poor, third)
    return Pages(api.report(run), api.report(poor), several)


def looked_at(browser: Browser, page: Path, width: int, scheme: str) -> list[dict[str, Any]]:
    """The plots that a window shows, after what every page must hold."""
    browser.look(page, width, 900, scheme)
    browser.complaints(), browser.requests()  # of whatever was open before
    browser.run("location.reload()")
    assert browser.run("return document.readyState") == "complete"
    asked = [address for address in browser.requests() if not address.startswith("data:")]
    assert set(asked) <= {page.resolve().as_uri()}
    assert browser.complaints() == []
    assert browser.run("return document.documentElement.scrollWidth") == width
    dark = browser.run("return matchMedia('(prefers-color-scheme: dark)').matches")
    assert dark == (scheme == "dark")
    plots: list[dict[str, Any]] = browser.run(SHOWN)
    for plot in plots:
        assert plot["marks"] > 0, plot
        assert min(plot["width"], plot["height"]) > 40, plot
        assert plot["left"] >= 0, plot
        assert plot["right"] <= width, plot
        assert plot["smallest"] >= 4, plot  # the narrower side of any text, such as of a digit
        assert (plot["outside"], plot["overlaps"]) == (0, 0), plot
    return plots


@pytest.mark.parametrize(("width", "scheme"), WINDOWS)
def test_a_run_is_drawn_on_a_laptop_and_a_phone_in_light_and_dark(
    browser: Browser, pages: Pages, width: int, scheme: str
) -> None:
    plots = looked_at(browser, pages.whole, width, scheme)
    assert {plot["kind"] for plot in plots} == PLOTS
    assert sum(plot["kind"] == "lines" for plot in plots) == 6
    for name, ratio in browser.run(CONTRAST):
        assert ratio >= (4.5 if name in ("ink", "muted") else 3), f"{name} has a contrast of {ratio:.2f} in {scheme}"


@pytest.mark.parametrize(("width", "scheme"), WINDOWS[::3])
def test_pages_of_a_poor_run_and_of_several_are_drawn(browser: Browser, pages: Pages, width: int, scheme: str) -> None:
    assert {plot["kind"] for plot in looked_at(browser, pages.poor, width, scheme)} == {"lines", "bars", "columns"}
    assert {plot["kind"] for plot in looked_at(browser, pages.several, width, scheme)} == {"lines", "bars"}


def test_the_pointer_is_told_what_it_is_over(browser: Browser, pages: Pages) -> None:
    looked_at(browser, pages.whole, 1280, "light")
    chart = "[...document.querySelectorAll('svg[data-hover]')].find(one => one.checkVisibility())"
    browser.run(f"{chart}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    left, top, wide, high = browser.run(
        f"const b = {chart}.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]"
    )
    ends, hidden = time.monotonic() + 20, True
    while hidden and time.monotonic() < ends:  # a busy browser tells of the pointer late
        browser.point(left + wide / 2, top + high / 2)
        told, hidden = browser.run("const tip = document.getElementById('tip'); return [tip.textContent, tip.hidden]")
    assert not hidden
    assert told.startswith("step ")
    assert "seed 0: " in told
    browser.point(1, 1)
    assert browser.run("return document.getElementById('tip').hidden")


def test_legends_single_out_and_heads_sort(browser: Browser, pages: Pages) -> None:
    looked_at(browser, pages.whole, 1280, "light")
    faded = browser.run(
        "document.querySelector('.map [data-show]').click();"
        "const dots = [...document.querySelectorAll('.map circle')];"
        "return [dots.filter(one => one.classList.contains('faded')).length, dots.length]"
    )
    assert 0 < faded[0] < faded[1]
    table = "document.querySelector('#answers table')"
    support = f"[...{table}.tBodies[0].rows].map(row => Number(row.cells[4].textContent))"
    before = browser.run(f"return {support}")
    browser.run(f"const head = {table}.tHead.rows[0].cells[4].firstChild; head.click(); head.click()")
    after = browser.run(f"return {support}")
    assert before == sorted(before, reverse=True)
    assert after == sorted(before)


def test_names_that_would_be_markup_are_text(browser: Browser, pages: Pages) -> None:
    looked_at(browser, pages.whole, 1280, "light")
    assert browser.run("return document.scripts.length") == 1
    seen = browser.run("return document.body.innerText")
    assert "<script>alert(1)</script>" in seen
    assert "<i>node</i>" in seen
