"""A browser for all tests of this folder; they are skipped without one, unless it is required."""

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.browser.chromium import Browser, NoBrowserError, open_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(open_browser())
        except NoBrowserError as reason:
            if os.environ.get("NFDIST_REQUIRE_BROWSER") == "1":
                pytest.fail(f"a browser is required, but {reason}")
            pytest.skip(f"no browser: {reason}")
        yield opened
