"""The documents and what is in them."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("[lp]*/README.md")])


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language and the text of every block of code, in their order."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def commands(block: str) -> Iterator[str]:
    """The commands of a block of shell, each with the lines it goes on over and the text it is given."""
    lines = iter(block.replace("\\\n", " ").splitlines())
    for line in lines:
        if "<<'END'" in line:
            line = "\n".join([line, *iter(lambda: next(lines), "END"), "END"])
        if line.strip() and not line.startswith("#"):
            yield line


def anchors(page: Path) -> set[str]:
    """What links to a page may name after the #: its headings in lower case, words joined by hyphens."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
