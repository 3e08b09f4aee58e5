"""The pieces of a page that are no charts: cards, tables, notes; and the page around them.

A page is one file that asks for nothing elsewhere: its policy forbids that to the browser, and any script but its own.
"""

import base64
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from nfdist import __version__
from nfdist.reporting.words import escaped, sentence

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading, reached by `#anchor` from a list of `short` titles."""

    anchor: str
    short: str
    title: str
    body: str


def page(title: str, under: str, top: str, parts: Sequence[Section]) -> str:
    """A whole page; `under` is the line under the title, `top` what comes before the sections."""
    style, script = ((FOLDER / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    allowed = base64.b64encode(sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'; img-src data:"
    links = "".join(f'<a href="#{part.anchor}">{escaped(part.short)}</a>' for part in parts)
    body = "".join(
        f'<section id="{part.anchor}"><h2>{escaped(part.title)}</h2><div class="cards">{part.body}</div></section>'
        for part in parts
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escaped(title)} · nfdist</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<header>
<p class="brand">nfdist {__version__} report</p>
<h1>{escaped(title)}</h1>
<p class="under">{escaped(under)}</p>
{top}
</header>
<nav aria-label="sections">{links}</nav>
<main>{body}</main>
<div id="tip" role="status" hidden></div>
<script>{script}</script>
</body>
</html>
"""


def card(title: str, body: str, wide: bool = False, high: bool = False) -> str:
    """A part of a section, `wide` over all of it, or as `high` as two others."""
    heading = f"<h3>{escaped(title[:1].upper() + title[1:])}</h3>" if title else ""
    return f'<article class="card{" whole" if wide else ""}{" high" if high else ""}">{heading}{body}</article>'


def note(text: str) -> str:
    """A sentence; what stands `between` is a command."""
    return f'<p class="note">{sentence(text)}</p>'


def code(text: str) -> str:
    """A command to copy."""
    button = '<button type="button" data-copy>Copy</button>'
    return f'<div class="command"><pre><code>{escaped(text)}</code></pre>{button}</div>'


def details(title: str, body: str) -> str:
    return f"<details><summary>{escaped(title)}</summary>{body}</details>"


def tile(value: str, name: str, more: str) -> str:
    return f'<div class="tile"><b>{escaped(value)}</b><span>{escaped(name)}</span><small>{escaped(more)}</small></div>'


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: Collection[int] = (),
    html: Collection[int] = (),
    mono: Collection[int] = (),
    tall: bool = False,
) -> str:
    """A table; columns are `numeric`, hold `html` that is safe, or are in `mono` type. Heads sort it when pressed."""

    def cell(place: int, text: str) -> str:
        kinds = " ".join(name for name, places in (("number", numeric), ("mono", mono)) if place in places)
        shown = text if place in html else escaped(text)
        if place in mono:  # names may be broken between their words
            shown = shown.replace(".", ".<wbr>").replace("_", "_<wbr>").replace("/", "/<wbr>")
        return f'<td class="{kinds}">{shown}</td>' if kinds else f"<td>{shown}</td>"

    head = "".join(
        f'<th scope="col"{" class=number" if place in numeric else ""}><button type="button">{escaped(name)}</button>'
        "</th>"
        for place, name in enumerate(heads)
    )
    top = f"<thead><tr>{head}</tr></thead>" if heads else ""
    body = "".join(f"<tr>{''.join(cell(place, text) for place, text in enumerate(row))}</tr>" for row in rows)
    return f'<div class="table{" tall" if tall else ""}" tabindex="0"><table>{top}<tbody>{body}</tbody></table></div>'
