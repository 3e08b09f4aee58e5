"""A page has the numbers of its facts, is written whole, and says what it was asked for wrongly."""

import html
import re
import shutil
from pathlib import Path

import pytest

from nfdist import api
from nfdist.errors import ConfigError, NfdistError
from nfdist.reporting.page import one_run, write_report
from nfdist.reporting.words import score
from tests.reporting.building import CLASSES
from tests.reporting.drawn import drawings, text_of
from tests.reporting.explained import Explained


def test_a_page_shows_the_scores_the_classes_and_the_command(explained: Explained) -> None:
    page, facts = one_run(explained.facts), explained.facts
    seen = text_of(page)
    for one in facts.course.seeds:
        assert one.best is not None
        assert score(one.best["test"]) in seen
        assert one.smoothed is not None
        assert score(one.smoothed["test"]) in seen
    for name in CLASSES:
        assert name in seen
        assert name not in page or html.escape(name) == name
    assert f"nfdist train {explained.path}/config.toml run.dir={explained.path}-again" in seen
    assert "128 nodes, drawn by a fixed seed" in seen
    assert page == one_run(facts)  # the same facts, the same page


def test_every_chart_of_a_whole_run_is_drawn(explained: Explained) -> None:
    kinds = [drawing.attrib["data-plot"] for drawing in drawings(one_run(explained.facts))]
    assert kinds.count("lines") == 2 * 6
    assert {"bars", "columns", "heat", "calibration", "map", "spans", "chance"} < set(kinds)


def test_it_is_in_the_run_or_where_it_is_wanted_and_api_gives_its_place(explained: Explained, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(explained.path, tmp_path / "run"))
    assert api.report(copy) == copy / "report.html"
    assert api.report(copy, out=tmp_path / "other.html") == tmp_path / "other.html"
    assert (copy / "report.html").read_text() == (tmp_path / "other.html").read_text()
    assert not [path for path in copy.iterdir() if "tmp" in path.name]
    second = Path(shutil.copytree(explained.path, tmp_path / "second"))
    place, _ = write_report([copy, second])
    assert place == tmp_path / "report.html"


@pytest.mark.parametrize(
    ("runs", "options", "said"),
    [
        ([], {}, "needs a run"),
        (["run", "run"], {}, "given twice"),
        (["run", "x"], {"partition": "graph"}, "is for the report of one run"),
        (["run"], {"out": "folder"}, "is a directory"),
        (["run"], {"out": "nowhere/page.html"}, "folder that is not there"),
        (["run"], {"out": "page.pdf"}, "name it page.html"),
        (["run"], {"out": "s3://bucket/page.html"}, "name a file here"),
        (["s3://bucket/run"], {}, "name a folder of this host"),
        (["nothing"], {}, "holds no run.json"),
    ],
)
def test_mistakes_are_told_before_any_work(
    runs: list[str],
    options: dict[str, str],
    said: str,
    explained: Explained,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "run").symlink_to(explained.path)
    with pytest.raises(NfdistError, match=re.escape(said)):
        write_report(runs, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "run"]


def test_a_page_that_cannot_be_written_is_one_line(explained: Explained, tmp_path: Path) -> None:
    (tmp_path / "no").write_text("a file")
    with pytest.raises(ConfigError, match="is not there"):
        write_report([explained.path], tmp_path / "no" / "page.html")
