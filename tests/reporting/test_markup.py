"""A page is one file that asks for nothing elsewhere and runs no script but its own."""

import base64
import re
from hashlib import sha256
from html.parser import HTMLParser

from nfdist.reporting.markup import Section, card, code, note, page, table, tile

WORST = '"><script>alert(1)</script><img src=x>'


class Tags(HTMLParser):
    """What a browser would take for elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.append(tag)


def test_whatever_texts_are_they_become_no_elements() -> None:
    body = card(WORST, note(WORST) + code(WORST) + tile(WORST, WORST, WORST) + table([WORST], [[WORST]], mono=(0,)))
    whole = page(WORST, WORST, "", [Section("one", WORST, WORST, body)])
    assert Tags(whole).found.count("script") == 1
    assert "img" not in Tags(whole).found


def test_the_policy_allows_its_own_script_and_nothing_from_elsewhere() -> None:
    whole = page("a", "b", "", [])
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', whole)
    (script,) = re.findall(r"<script>(.*)</script>", whole, re.DOTALL)
    allowed = base64.b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{allowed}'" in policy
    assert policy.startswith("default-src 'none';")
    assert not re.search(r"(src|href)=[\"'](?!#|data:)", whole)
    assert "http" not in re.sub(r'xmlns="[^"]*"|http-equiv', "", whole)
