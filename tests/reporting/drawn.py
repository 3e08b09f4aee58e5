"""The pictures and the words in a piece of a page."""

import html
import re
from xml.etree import ElementTree


def drawings(text: str) -> list[ElementTree.Element]:
    """The wide one of each chart first."""
    return [ElementTree.fromstring(found) for found in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def text_of(page: str) -> str:
    """What a reader sees."""
    without = re.sub(r"<(script|style)>.*?</\1>|<wbr>", "", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", " ", without))
