"""Links between the documents, and from the code to them, lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, anchors

SOURCES = sorted((ROOT / "nfdist").rglob("*.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_to_files_and_headings(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in link:
            assert_leads_somewhere(page.parent, link)


def test_links_of_the_code_lead_to_headings() -> None:
    links = {link for path in SOURCES for link in re.findall(r"docs/\w+\.md(?:#[\w-]+)?", path.read_text())}
    assert "docs/numerics.md#heavy-keys" in links
    for link in links:
        assert_leads_somewhere(ROOT, link)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_modules_that_a_page_names_are_there(page: Path) -> None:
    if page.name == "CHANGELOG.md":  # which tells of what was
        return
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`((?:nfdist|tests|benchmarks|docs|launch)/[\w/.-]*)`", text):
        assert (ROOT / name).exists(), name


def assert_leads_somewhere(folder: Path, link: str) -> None:
    name, _, heading = link.partition("#")
    target = folder / name if name else None
    assert target is None or target.exists(), link
    if heading and target is not None:
        assert heading in anchors(target), link
